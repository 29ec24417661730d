"""Calls of modules with a preserved signature: arguments as the original took them, results as it returned them.

Values that the preserved signature does not name travel in a per-call side channel.  In the fx graph of a body arguments
and results are flat; a call of such a module is a call of ``PreservedCall``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref, same_arg
from ...ir.calls.argument_tree import ArgumentTree, flatten
from ...ir.calls.call_sites import Convention
from ...ir.calls.compatibility import described_call
from ...ir.errors import CallError, InputError, InputValueError
from ...ir.graph import Call, Node
from ...ir.names import FROM_ROOT
from ...ir.own_operators import pack, unpack
from ...ir.torch_private import is_tracing
from .arguments import other_literal, result_builder

__all__ = ["CallHandler", "CallHandlers", "PreservedCall", "edited", "handling"]

SideChannel = list[Any]
"""What travels beside the arguments: call number, values for the body, and on the way back the values that it gives."""


class PreservedCall:
    """A call of a module with a preserved signature, in one body."""

    __name__ = "call_site"  # fx asks functions in graphs for their names

    def __init__(self, node: Node, call: Call, convention: Convention, formals: Sequence[str]) -> None:
        actual = dict(zip(formals, node.args, strict=True))
        self.path = str(call.instance).removeprefix(FROM_ROOT)
        self.convention = convention
        self.leaves: tuple[Arg, ...] = tuple([actual[leaf.name] if type(leaf) is Ref else leaf for leaf in convention.takes])
        """The leaves of the arguments, in terms of the caller."""
        self.extra: tuple[Arg, ...] = tuple([arg for arg, leaf in zip(node.args, convention.inputs, strict=True) if leaf < 0])
        """What the signature does not name."""
        self.number = call.instance.call
        signature = convention.signature
        self.callee = evolve(call.instance, call=0) if signature.shared else call.instance
        """Which of the caller's attributes is called."""
        self.writes = signature.shared or not convention.is_closed
        """Whether a channel goes along."""
        self.pack = packing(signature.in_spec)
        self.out_spec = signature.out_spec

    def __deepcopy__(self, memo: dict[int, Any]) -> PreservedCall:
        return self  # code is not state

    def __call__(self, child: Any, leaves: Sequence[Any], extra: Sequence[Any]) -> Any:
        """Call a module and return what the caller uses of the result."""
        args, kwargs = self.pack(leaves)
        channel: SideChannel | None = None
        if self.writes and hasattr(child, "purefx_handlers"):
            channel = [self.number, extra, ()]
            result = child(*args, purefx_side_channel=channel, **kwargs)
        else:
            result = child(*args, **kwargs)
        convention = self.convention
        if not convention.outputs:
            return ()
        flat = self._taken_apart(result, child)
        if convention.single and convention.outputs[0] >= 0:
            return flat[convention.outputs[0]]
        values = self._values(flat, channel, child)
        return values[0] if convention.single else values

    def _taken_apart(self, result: Any, child: Any) -> Sequence[Any]:
        if not (self.out_spec.is_leaf() and type(result) in (tuple, list, dict)):
            try:
                return flatten(result, self.out_spec, "result")
            except InputError:
                pass
        return unpack(result, self.out_spec, described_call(self.path, self.convention.signature, child))

    def _values(self, flat: Sequence[Any], channel: SideChannel | None, child: Any) -> tuple[Any, ...]:
        convention = self.convention
        if convention.unnamed and channel is None:
            raise CallError(
                f"module {self.path} was replaced by a {type(child).__name__}, and its result does not hold "
                f"{', '.join(convention.unnamed)}, which is used outside of it: replace its parent, or give that value back"
            )
        given = channel[2] if channel is not None else ()
        return tuple([flat[leaf] if leaf >= 0 else given[index] for index, leaf in enumerate(convention.outputs)])


def packing(in_spec: Any) -> Callable[[Sequence[Any]], tuple[Sequence[Any], Mapping[str, Any]]]:
    """Return a function from leaves to the positional and keyword arguments that they make up.

    >>> from purefx.ir.torch_private import pytree
    >>> packing(pytree.tree_structure(((1, 2), {"k": 3})))(["x", "y", "z"])
    (['x', 'y'], {'k': 'z'})
    """
    tree = ArgumentTree.of(in_spec)
    keys, count = tuple(tree.keyword), len(tree.positional)
    if tree.is_flat:
        if not keys:
            return lambda leaves: (leaves, {})
        return lambda leaves: (leaves[:count], dict(zip(keys, leaves[count:], strict=True)))
    return lambda leaves: pack(leaves, in_spec)


class CallHandler:
    """How a module answers one of its calls: the body, and how it is called."""

    def __init__(self, place: Any, convention: Convention) -> None:
        self.place = place
        self.convention = convention
        self.tree = ArgumentTree.of(convention.signature.in_spec, convention.signature.arg_names)
        self.result = result_builder(convention.signature.out_spec)
        self.literals = [(at, leaf) for at, leaf in enumerate(convention.takes) if type(leaf) is not Ref]
        """What the body was exported with, and computes with whatever is passed."""

    def __deepcopy__(self, memo: dict[int, Any]) -> CallHandler:
        return self

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any], channel: SideChannel | None) -> list[Any]:
        """Return the inputs of the body.

        Raises:
            InputError: the arguments are structured differently from the exported ones.
            InputValueError: an argument is another literal than the exported one.
            CallError: the body needs values of its caller, and was called from outside.
        """
        leaves = self._leaves(args, kwargs)
        for at, literal in self.literals:
            if leaves[at] is not literal and not same_arg(literal, leaves[at]) and not is_tracing():
                expected = other_literal(self.tree.paths[at], literal)
                raise InputValueError(f"module {self.place.path}: {expected}, got {leaves[at]!r}")
        convention = self.convention
        if -1 in convention.inputs and channel is None:
            raise CallError(
                f"module {self.place.path} uses values of the module that calls it, which its call signature does not name: "
                "it runs only as a part of the whole"
            )
        extra = iter(channel[1] if channel is not None else ())
        return [leaves[leaf] if leaf >= 0 else next(extra) for leaf in convention.inputs]

    def _leaves(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        tree = self.tree
        if len(args) != len(tree.positional) or set(kwargs) != set(tree.keyword):
            wanted = [*tree.labels[: len(tree.positional)], *(f"{key}=" for key in tree.keyword)]
            given = [f"{len(args)} positional", *(f"{key}=" for key in kwargs)]
            raise InputError(f"module {self.place.path} takes ({', '.join(wanted)}), got {', '.join(given)}")
        return tree.flatten([*args, *[kwargs[key] for key in tree.keyword]])


class CallHandlers(dict[int, CallHandler]):
    """How a module answers its calls, by call number; one that is called from outside answers as the first."""

    def of(self, channel: SideChannel | None) -> CallHandler:
        """Return the answer to a call."""
        if channel is not None and channel[0] in self:
            return self[channel[0]]
        return next(iter(self.values()))

    def __deepcopy__(self, memo: dict[int, Any]) -> CallHandlers:
        return self


def handling(run: Callable[[torch.nn.Module, Any, list[Any]], Any]) -> Callable[..., Any]:
    """Return the ``forward`` of a module with a preserved call signature.

    Args:
        run: runs the body at a place, on the state of a module.
    """

    def forward(self: Any, *args: Any, purefx_side_channel: SideChannel | None = None, **kwargs: Any) -> Any:
        answer = self.purefx_handlers.of(purefx_side_channel)
        output, leaves = run(self, answer.place, answer.values(args, kwargs, purefx_side_channel))
        if purefx_side_channel is not None:
            purefx_side_channel[2] = (output,) if answer.convention.single else output
        return answer.result(leaves)

    return forward


def edited(forward: Callable[..., Any], answers: CallHandlers) -> Callable[..., Any]:
    """Return the ``forward`` of a module with a preserved call signature whose fx graph was edited.

    The graph is that of its first call: other calls are answered as before.

    Args:
        forward: what fx generated from the graph.
        answers: how the module answers its calls.
    """
    first = answers.of(None)

    def run(module: Any, place: Any, values: list[Any]) -> Any:
        return forward(module, *values) if place is first.place else place.body.run(module, *values)

    return handling(run)
