"""Rewrite rules: a pattern and a replacement, both written as plain torch code.

``matching`` finds the pattern, ``legality`` and ``standing`` decide whether a match may be rewritten, ``application``
rewrites it.
"""

from __future__ import annotations

from .editing import Edit, editing
from .matching import match
from .modules import module
from .place import Match
from .rule import Rule, RuleSet, rule
from .terms import any_of
from .through import through

__all__ = ["Edit", "Match", "Rule", "RuleSet", "any_of", "editing", "match", "module", "rule", "through"]
