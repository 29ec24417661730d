"""Following: torch's functions that are written in Python, run on terms to find the operators that they call.

Such functions look at sizes and layouts, mostly to refuse wrong operands.  A check that cannot be answered is taken to have
passed: the code that a rule looks for was exported, so torch accepted it there.  A branch between two computations is no check,
and then the operator has to be named.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from functools import lru_cache
from types import CellType, FunctionType
from typing import Any

import torch

from ...ir.errors import RuleError
from ...ir.torch_private import builtin_functions, overloads_of

__all__ = ["Unanswered", "follow", "typical"]


class Unanswered(RuleError, TypeError):
    """Code looks at what only a run, or a match, knows."""


class _Device:
    """Where the operands of a function that is followed are: on a device for which it does nothing special."""

    type = "cpu"


class _Rank:
    """How many dimensions an operand has: some."""

    def __eq__(self, other: object) -> bool:
        return False if type(other) is int and other == 0 else _refuse()

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return True

    __lt__ = __gt__ = __le__ = __ge__ = __add__ = __sub__ = __mul__ = __rsub__ = __index__ = lambda *_: _refuse()  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _refuse() -> Any:
    raise Unanswered("how many dimensions a value has is known only where the rule matches")


TYPICAL: Mapping[str, Any] = {
    "layout": torch.strided, "device": _Device(), "is_sparse": False, "is_quantized": False, "ndim": _Rank(), "dim": _Rank,
    "requires_grad": False,
}  # fmt: skip
"""What operands are taken to be where torch's functions ask them."""

_FOLLOWED: ContextVar[bool] = ContextVar("followed", default=False)
"""Whether a function of torch is followed: its operands have no other way to know who asks them."""


def typical(name: str) -> Any:
    """Return what an attribute of an operand is while a function is followed; None if none is, or it is not said.

    >>> typical("layout")
    """
    return TYPICAL.get(name) if _FOLLOWED.get() else None


def follow(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return what a function of torch returns for terms.

    Args:
        function: written in Python.
        args: terms, and arguments as they stand.
        kwargs: those that are given by name.

    Raises:
        RuleError: what it computes depends on what only a run knows.
    """
    token = _FOLLOWED.set(True)
    try:
        return _run(function, args, kwargs)
    finally:
        _FOLLOWED.reset(token)


def _run(function: FunctionType, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    inspect.signature(function).bind(*args, **kwargs)
    try:
        return _plain(function)(*args, **kwargs)
    except TypeError:
        pass  # perhaps only a check asks
    try:
        return _without_checks(function)(*args, **kwargs)
    except (TypeError, OSError) as error:
        said = str(error).partition("\n")[0]
        named = ", ".join([f"torch.ops.aten.{name}" for name in _calls(function)[:4]]) or "torch.ops.aten.<name>"
        raise RuleError(
            f"what {function.__name__} computes depends on what a rule does not know ({said}).\n"
            f"Write the operator that it calls in the program, such as {named}"
        ) from error


def _calls(function: FunctionType) -> list[str]:
    # The operators of aten that it may call.
    known = {name for name, _ in builtin_functions()}
    return [name for name in function.__code__.co_names if name in known and overloads_of(name)]


def _overriding(function: FunctionType) -> dict[str, Any]:
    # torch's Python functions hand an argument that overrides them to its class; here they run as for a tensor.
    plain = {name: lambda *_: False for name in function.__globals__ if name.startswith("has_torch_function")}
    return {**function.__globals__, **plain}


def _plain(function: FunctionType) -> Callable[..., Any]:
    inner = [cell.cell_contents for cell in function.__closure__ or ()]
    closure = tuple([CellType(_plain(one) if isinstance(one, FunctionType) else one) for one in inner]) or None
    same = FunctionType(function.__code__, _overriding(function), function.__name__, function.__defaults__, closure)
    same.__kwdefaults__ = function.__kwdefaults__
    return same


@lru_cache(maxsize=256)
def _without_checks(function: FunctionType) -> Callable[..., Any]:
    # The same function; what it checks and cannot know is passed over.
    if function.__closure__:
        return _plain(function)
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    (definition,) = tree.body
    assert isinstance(definition, ast.FunctionDef)
    definition.decorator_list, definition.returns = [], None
    for each in ast.walk(definition.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    space = _overriding(function)
    exec(compile(ast.fix_missing_locations(_Checks().visit(tree)), function.__code__.co_filename, "exec"), space)  # noqa: S102
    found = space[definition.name]
    found.__defaults__, found.__kwdefaults__ = function.__defaults__, function.__kwdefaults__
    return found


class _Checks(ast.NodeTransformer):
    """Lets checks that cannot be answered pass."""

    def visit_If(self, node: ast.If) -> ast.AST:
        """Change an ``if`` that does nothing but refuse or warn."""
        self.generic_visit(node)
        is_check = isinstance(node.body[-1], ast.Raise) or all(_is_warning(each) for each in node.body)
        return _passing(node) if is_check and not node.orelse else node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Change a call of a function that does nothing but refuse."""
        return _passing(node) if _called(node).lstrip("_").startswith(("verify", "check")) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        """Change an assertion."""
        return _passing(node)


def _passing(node: ast.stmt) -> ast.Try:
    (made,) = ast.parse("try:\n    pass\nexcept TypeError:\n    pass").body
    assert isinstance(made, ast.Try)
    made.body = [node]
    return made


def _is_warning(node: ast.stmt) -> bool:
    return _called(node) == "warn"


def _called(node: ast.stmt) -> str:
    call = node.value if isinstance(node, ast.Expr) else None
    function = call.func if isinstance(call, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
