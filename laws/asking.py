"""``assert_law``: one law, asked of one transformation on one case, and what is said when it does not hold.

One idea: the message is the bug report: the sentence that does not hold, what is wrong, what the function did to the
program, and the program as text that parses back.  Programs are drawn elsewhere.
"""

from __future__ import annotations

from ..ir.diff import diff
from ..ir.errors import PurefxError, UnsupportedProgram
from ..ir.program import Program
from .law import GENERIC, Case, Law, Transform
from .watching import NoTransformation, watched

__all__ = ["LawBroken", "assert_law", "name_of", "refuses"]

PURE = next(law for law in GENERIC if law.name == "pure")


class LawBroken(PurefxError, AssertionError):
    """A transformation does not do what a law says.

    Args:
        message: all of it as text.
        law: the law.
        case: the program, and the seed of its variants.
        wrong: what the law's check found.

    >>> issubclass(LawBroken, AssertionError)
    True
    """

    def __init__(self, message: str, law: Law | None = None, case: Case | None = None, wrong: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.law = law
        self.case = case
        self.wrong = wrong


def name_of(transform: Transform) -> str:
    """Return what messages call a function.

    Args:
        transform: a function or a ``Transformation``.

    >>> name_of(lambda program: program)
    '<lambda>'
    """
    return getattr(transform, "__name__", None) or getattr(transform, "name", None) or repr(transform)


def assert_law(transform: Transform, law: Law, case: Case) -> None:
    """Raise unless a law holds on one case.

    Args:
        transform: the function from programs to programs.
        law: what should hold.
        case: the program, and how to vary and to run it.

    Raises:
        LawBroken: it does not, or the transformation raises; the message has the sentence, what is wrong, what was
            done to the program, and the program.

    >>> from purefx.ir import Graph
    >>> assert_law(lambda program: program, GENERIC[0], Case(Program.of({"": Graph((), (), ())})))
    """
    try:
        wrong = law.check(watched(transform), case)
    except NoTransformation as error:
        raise _broken(transform, PURE if error.writes else law, case, [str(error)]) from error
    except Exception as error:
        raise _broken(transform, law, case, [f"{type(error).__name__}: {error}"]) from error
    if wrong:
        raise _broken(transform, law, case, wrong)


def refuses(transform: Transform, case: Case) -> bool:
    """Say whether a transformation says that it can not treat the program of a case faithfully; then no law is asked.

    Args:
        transform: the function from programs to programs.
        case: the program.

    >>> from purefx.ir import Graph
    >>> refuses(lambda program: program, Case(Program.of({"": Graph((), (), ())})))
    False
    """
    try:
        watched(transform)(case.program)
    except UnsupportedProgram:
        return True
    except Exception:  # noqa: BLE001  the laws will tell
        return False
    return False


def _broken(transform: Transform, law: Law, case: Case, wrong: list[str]) -> LawBroken:
    head = f"{name_of(transform)} breaks the law {law.name!r}: {law.statement}"
    lines = [head, *wrong, *_done(transform, case.program), "on the program", str(case.program)]
    return LawBroken("\n".join(lines), law, case, tuple(wrong))


def _done(transform: Transform, program: Program) -> list[str]:
    try:
        result = watched(transform)(program)
    except Exception:  # noqa: BLE001  what it raises is told already; there is no result to compare with
        return []
    if result is program:
        return ["it gives back the program itself"]
    changes = diff(program, result)
    return ["what it does to it:", str(changes)] if changes else ["it gives back an equal program, another object"]
