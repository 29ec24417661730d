"""Benchmarks: ``python -m bench``.

One idea: every figure is a ratio between two things timed in turn in one process, with the garbage collector as users
have it.  Nothing here runs in ``make test``.
"""
