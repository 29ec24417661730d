"""The module tree of a lowered program: its modules, their state, conversion and pickling.

Assignment of children is in ``swaps/``.
"""
