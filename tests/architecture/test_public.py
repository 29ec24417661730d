"""Every public name of ``purefx`` is documented, and ``__all__`` tells the truth."""

from __future__ import annotations

import purefx
from tests.architecture.public import check_documented


def test_documented() -> None:
    lacking = [line for name in purefx.__all__ for line in check_documented(name, getattr(purefx, name))]
    assert not lacking, "\n".join(lacking)


def test_all_is_sorted_and_exists() -> None:
    assert len(set(purefx.__all__)) == len(purefx.__all__)
    assert all(hasattr(purefx, name) for name in purefx.__all__)


def test_a_badly_documented_name_is_found() -> None:
    def bare(x: int) -> int:
        return x

    def example_only(x: int) -> int:
        """Return it.

        >>> 1
        1
        """
        return x

    class Told:
        """Something.

        >>> 1
        1
        """

    class Inherits(Told):
        pass

    assert list(check_documented("bare", bare)) == ["bare: no docstring"]
    assert list(check_documented("example_only", example_only)) == ["example_only: takes x and has no section Args"]
    assert list(check_documented("Told", Told)) == []
    assert list(check_documented("Inherits", Inherits)) == ["Inherits: no docstring"]
