"""How lowered modules are called: the root, binding of arguments, guards, and calls with a preserved signature.

The generated code itself is in ``code/``.
"""
