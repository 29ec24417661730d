"""Code generation: the source of a body, its compiled function, and the fx graph and contract that users see.

Nothing here makes a module.
"""
