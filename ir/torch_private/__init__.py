"""Every private name of torch that purefx uses, with the reason.

If torch moves one, one file of this folder changes, and ``tests/upstream/test_torch_private.py`` names it.  The folder only
gives typed names.
"""

# ruff: noqa: F403 - each file lists its names, once

from __future__ import annotations

from . import _release as _release  # first: a private name may be missing in another torch
from .fakes import *
from .graphs import *
from .joints import *
from .modes import *
from .operators import *
