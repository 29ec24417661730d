"""Check that a program is valid: ``verify`` returns all violations, ``check`` raises them.

``RULES`` is the specification: a table of rules, each with a statement, a check and advice.
"""

from __future__ import annotations

from ..errors import Violation
from .findings import Finding, Rule
from .verifier import DEEP, RULES, check, trust, verify

__all__ = ["DEEP", "RULES", "Finding", "Rule", "Violation", "check", "trust", "verify"]
