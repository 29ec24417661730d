"""Calls of bodies: the call graph, instances, calling conventions, compatible signatures, and the parts of a split program.

Nothing here rewrites a program.
"""
