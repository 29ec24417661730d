"""How lowered modules are called: the root, binding of arguments, guards, and calls with a preserved signature.

What runs inside is in ``code/``.
"""
