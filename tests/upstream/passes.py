"""``PASSES``: the published passes of the installed torch that ``make audit`` asks, with what each looks for."""

from __future__ import annotations

from . import passes_of_export, passes_of_fx, passes_of_inductor
from .published import PASSES, Published

__all__ = ["PASSES", "Published"]

assert passes_of_fx and passes_of_inductor and passes_of_export  # they list theirs as they are imported
