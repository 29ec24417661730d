"""Benchmarks: ``python -m bench``.

Every figure is a ratio of two candidates that are timed alternately in one process, with the garbage collector enabled as it is
for users.  Nothing here runs in ``make test``.
"""
