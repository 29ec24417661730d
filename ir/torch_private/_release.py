"""Warns once if the installed torch is not a supported release.

The first import of this package runs it, before any look-up of a private name.
"""

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
        warnings.warn(
            f"purefx supports torch {major}.{oldest} to {major}.{newest} and is not tested with the installed torch "
            f"{version}; install a supported release: pip install 'torch>={major}.{oldest},<{major}.{newest + 1}'",
            stacklevel=2,
        )


check_release(torch.__version__)
