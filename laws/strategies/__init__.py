"""Hypothesis strategies that generate programs: ``from purefx.laws.strategies import programs``.

One idea: what is drawn is small numbers, what comes out is always a valid program.  Needs the extra ``laws``; the rest
of ``purefx.laws`` does not.
"""

from __future__ import annotations

from .programs import STAGES, Stage, legal_orders, programs, renamings

__all__ = ["STAGES", "Stage", "legal_orders", "programs", "renamings"]
