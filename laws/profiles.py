"""``register`` and ``share``: hypothesis profiles under which programs are drawn, and what they mean for laws.

One idea: a profile says how many programs are drawn and whether they are the same ones every time; whoever runs the tests
chooses it, not who wrote them.  The names begin with ``purefx-``, so that no profile of yours is replaced.
"""

from __future__ import annotations

from types import MappingProxyType

from attrs import frozen
from hypothesis import HealthCheck, settings

__all__ = ["PREFIX", "PROFILES", "Profile", "active", "register", "share"]

PREFIX = "purefx-"


@frozen
class Profile:
    """How programs are drawn.

    >>> PROFILES["ci"].always_the_same
    True
    """

    factor: float
    """How many programs are drawn, compared with ``ci``."""
    always_the_same: bool
    """Whether every run draws the same ones."""


PROFILES = MappingProxyType({
    "dev": Profile(0.2, always_the_same=False),
    "ci": Profile(1.0, always_the_same=True),
    "deep": Profile(20.0, always_the_same=False),
})  # fmt: skip
"""``dev`` for the next minute, ``ci`` for every change, ``deep`` for the night."""


def register() -> None:
    """Make ``purefx-dev``, ``purefx-ci`` and ``purefx-deep`` known to hypothesis; none is loaded.

    >>> register()
    >>> settings.get_profile("purefx-ci").derandomize
    True
    """
    for name, profile in PROFILES.items():
        settings.register_profile(
            PREFIX + name,
            max_examples=max(1, round(100 * profile.factor)),
            derandomize=profile.always_the_same,
            # Other programs each time, and those that failed first.
            database=None if profile.always_the_same else settings.get_profile("default").database,
            deadline=None,
            print_blob=True,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
        )


def active() -> Profile:
    """Return the profile that is loaded; ``ci`` where hypothesis runs under one that is not ours.

    >>> active() in PROFILES.values()
    True
    """
    return PROFILES.get(settings.get_current_profile_name().removeprefix(PREFIX), PROFILES["ci"])


def share(examples: int) -> int:
    """Return how many programs to draw where the ``ci`` profile draws some number.

    Args:
        examples: that number.

    >>> share(1)
    1
    """
    return max(1, round(examples * active().factor))
