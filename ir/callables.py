"""What a graph calls, and its name: ``op_name``, and ``Method``, a method of a value that is called by name.

One idea: a graph that fx traced calls methods of values whose types nobody wrote down.  Where a value is known to be a tensor,
the method is the dispatcher's operator of that name and has its effects; where it is not, it may do anything.  The name is
looked up on the value when the method is called, as fx does, and nowhere else.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

from .torch_private import HigherOrderOperator, OpOverload

__all__ = ["Method", "op_name"]


@frozen
class Method:
    """Calls a method of its first argument.

    >>> Method("upper")("a"), str(Method("upper")), str(Method("relu", of_tensor=True))
    ('A', 'method.upper', 'tensor.relu')
    """

    name: str
    of_tensor: bool = False
    """Whether the first argument is known to be a tensor, so that it does what the operator of its name does."""

    def __call__(self, value: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the method of a value.

        Raises:
            TypeError: it was said to be a tensor, and is not: lists and texts have methods of the same names.
        """
        if self.of_tensor and not hasattr(type(value), "__torch_function__"):
            raise TypeError(f"{self} is called on a {type(value).__name__}, which is not a tensor")
        return getattr(value, self.name)(*args, **kwargs)

    def __str__(self) -> str:
        return f"{'tensor' if self.of_tensor else 'method'}.{self.name}"


def op_name(target: Any) -> str:
    """Return the name under which an operator is compared and printed.

    >>> import operator, torch
    >>> op_name(torch.ops.aten.add.Tensor), op_name(operator.getitem), op_name(torch.ops.higher_order.cond)
    ('aten.add.Tensor', 'operator.getitem', 'higher_order.cond')
    """
    if isinstance(target, OpOverload):
        return str(target)
    if isinstance(target, HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, Method):
        return str(target)
    module = _text(target, "__module__") or "builtins"
    name = _text(target, "__qualname__") or _text(target, "__name__") or type(target).__name__
    name = name.removeprefix("_VariableFunctionsClass.")  # where torch keeps the functions that it calls torch.relu ...
    return f"{'operator' if module == '_operator' else module}.{name}"


def _text(target: Any, name: str) -> str | None:
    # A callable may be any object, and what it calls its name anything.
    found = getattr(target, name, None)
    return found if type(found) is str else None
