"""Rewrite rules: a pattern and a replacement, both written as plain torch code.

``matching`` finds the pattern, ``legality`` decides whether a match may be rewritten, ``application``
rewrites it.
"""

from __future__ import annotations

from .matching import match
from .patterns import module
from .place import Match
from .rule import Rule, RuleSet, rule
from .terms import any_of, through

__all__ = ["Match", "Rule", "RuleSet", "any_of", "match", "module", "rule", "through"]
