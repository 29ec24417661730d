"""The module tree that a program is lowered to: its modules, their state, conversion and pickling.

Assignment of children is in ``swaps/``.
"""
