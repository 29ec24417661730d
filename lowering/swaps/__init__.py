"""Assign children of lowered modules and register hooks on them.

Everything is checked before anything changes.
"""
