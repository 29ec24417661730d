"""Calls of bodies: the call graph, call sites and calling conventions, compatibility of signatures, parts.

These read programs; rewriting is the business of ``transforms/``.
"""
