"""``Method``: a method of a value, called by name, as an operator.

One idea: a graph that fx traced calls methods of values whose types nobody wrote down.  Where a value is known to be a tensor,
the method is the dispatcher's operator of that name and has its effects; where it is not, it may do anything.  The name is
looked up on the value when the method is called, as fx does, and nowhere else.
"""

from __future__ import annotations

from typing import Any

from attrs import frozen

__all__ = ["Method"]


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
