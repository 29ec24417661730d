"""Rewrite rules: a pattern and its replacement, written as two functions of plain torch code.

Terms are what they are made of, matching finds them, application decides when a match may be taken.
"""

from __future__ import annotations

from .matching import match
from .replacement import Match
from .rule import Rule, RuleSet, rule
from .terms import any_of

__all__ = ["Match", "Rule", "RuleSet", "any_of", "match", "rule"]
