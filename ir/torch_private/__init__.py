"""Every private name of torch that purefx uses, with the reason.

If torch moves one, one file of this folder changes, and ``tests/upstream/test_torch_private.py`` names it.  The folder only
gives typed names.  The first import warns if the installed torch is not a supported release, before any look-up of a private
name, which may be missing in another torch.
"""

# ruff: noqa: E402, F403 - the release is checked first; each file lists its names, once

from __future__ import annotations

import warnings

import torch

SUPPORTED = ((2, 13), (2, 15))
"""The oldest and the newest release that purefx is tested with, as ``pyproject.toml`` requires."""


def check_release(version: str) -> None:
    """Warn if a release of torch is not supported.

    >>> check_release("2.13.0+cpu")
    """
    release = tuple(map(int, version.split(".")[:2]))
    if not SUPPORTED[0] <= release <= SUPPORTED[1]:
        (major, oldest), (_, newest) = SUPPORTED
        fault = f"purefx supports torch {major}.{oldest} to {major}.{newest} and is not tested with the installed torch {version}"
        advice = f"install a supported release: pip install 'torch>={major}.{oldest},<{major}.{newest + 1}'"
        warnings.warn(f"{fault}; {advice}", stacklevel=2)


check_release(torch.__version__)

from .fakes import *
from .graphs import *
from .joints import *
from .modes import *
from .operators import *
