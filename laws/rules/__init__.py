"""``check_rule``: laws of rewrite rules, asked of programs that are drawn around a pattern.  Needs the extra ``laws``.

Operands are found by trying the pattern, torch traces it on them, and programs are built around what it traced.
"""

from __future__ import annotations

from .checking import RuleReport, check_rule
from .laws import LAYOUT, RULE_LAWS

__all__ = ["LAYOUT", "RULE_LAWS", "RuleReport", "check_rule"]
