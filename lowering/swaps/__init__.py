"""Assignment of children of lowered modules, and registration of hooks.

Everything is checked before anything changes.
"""
