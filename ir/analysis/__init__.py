"""Analyses of whole programs and of graphs: digest, diff, which values are numbers, and what values are computed of.

``verify`` has a folder of its own beside this one.
"""
