"""Analyses of whole programs: digest, diff, and which values are numbers.

``verify`` has a folder of its own beside this one.
"""
