"""The rule sets of the library, each a ``RuleSet``: call it with a program, or add rules to it.

    from purefx import rules
    program = rules.attention(program)

``attention`` and ``fusions`` are correct within a tolerance, ``algebra`` is bit-exact (docs/rules.md has the tables).
"""

from __future__ import annotations

from purefx.transforms.rulesets import algebra, attention, fusions

__all__ = ["algebra", "attention", "fusions"]
