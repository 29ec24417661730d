"""The verifier: ``verify`` returns all violations of a program, ``check`` raises them.

Validity is a table of rules (``RULES``), each with its statement, its check and its advice.  Nothing here
repairs, transforms or runs a program.
"""

from __future__ import annotations

from ..errors import Violation
from .findings import Finding, Rule
from .verifier import DEEP, RULES, check, trust, verify

__all__ = ["DEEP", "RULES", "Finding", "Rule", "Violation", "check", "trust", "verify"]
