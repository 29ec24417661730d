"""Rewrite rules: a pattern and a replacement, both written as plain torch code.

``matching`` finds matches, ``legality`` decides whether they may be rewritten, and ``application`` rewrites them.
"""

from __future__ import annotations

from .match import Match
from .pattern import any_of, module, through
from .rule import Rule, RuleSet, rule

__all__ = ["Match", "Rule", "RuleSet", "any_of", "module", "rule", "through"]
