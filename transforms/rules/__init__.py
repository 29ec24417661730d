"""Rewrite rules: a pattern and its replacement, written as two functions of plain torch code.

Terms are what they are made of, matching finds them, application decides when a match may be taken.
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
