"""Sites: the calls of a module that something else is to stand in for, and what may stand there.

One idea: what a call passes and what its caller uses of the result is known before anything runs, so all that can be asked of a
replacement is asked here, once, for whoever puts it there.  Nothing here changes a program or a module.
"""

from __future__ import annotations

from .fitting import check_module, check_program, check_structure
from .passing import Through, passed_on, unclear_results, uses_of_passed
from .sites import Site, flat_convention, site_of

__all__ = [
    "Site", "Through", "check_module", "check_program", "check_structure", "flat_convention", "passed_on", "site_of",
    "unclear_results", "uses_of_passed",
]  # fmt: skip
