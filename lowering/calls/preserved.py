"""Call modules with a preserved signature: pass the original arguments, return the original results.

Values that are not in the preserved signature are passed in a per-call side channel.  In the fx graph of a body, arguments
and results are flat, and a call of such a module is a call of ``PreservedCall``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Arg, Ref, same_arg
from ...ir.calls.argument_tree import ArgumentTree, flatten
from ...ir.calls.call_sites import Convention
from ...ir.calls.compatibility import described_call
from ...ir.errors import CallError, InputError, InputValueError
from ...ir.graph import Call, Input, Node, Uncopied
from ...ir.names import FROM_ROOT
from ...ir.own_operators import pack, unpack
from ...ir.torch_private import is_tracing, uncompiled
from .arguments import other_literal, result_builder

SideChannel = list[Any]
"""Call number, extra operands of the body, and (after the call) its extra outputs."""


class PreservedCall(Uncopied):
    """A call of a module with a preserved signature, in one body."""

    __name__ = "call_site"  # fx reads the name of functions in graphs

    def __init__(
        self, node: Node, call: Call, convention: Convention, formals: Sequence[Input]
    ) -> None:
        actual = {formal.name: arg for formal, arg in zip(formals, node.args, strict=True)}
        self.path = str(call.instance).removeprefix(FROM_ROOT)
        self.convention = convention
        self.leaves: tuple[Arg, ...] = tuple(
            [actual[leaf.name] if type(leaf) is Ref else leaf for leaf in convention.takes]
        )
        """The leaves of the arguments, as values of the caller."""
        self.extra: tuple[Arg, ...] = tuple(
            [arg for arg, leaf in zip(node.args, convention.inputs, strict=True) if leaf < 0]
        )
        """The operands that the signature does not name."""
        self.number = call.instance.call
        signature = convention.signature
        self.callee = evolve(call.instance, call=0) if signature.shared else call.instance
        """The attribute of the caller that is called."""
        self.writes = signature.shared or not convention.is_closed
        """Whether a side channel is passed."""
        self.pack = packing(signature.in_spec)
        self.out_spec = signature.out_spec

    def __call__(self, child: Any, leaves: Sequence[Any], extra: Sequence[Any]) -> Any:
        """Call a module and return the outputs that the caller uses."""
        args, kwargs = self.pack(leaves)
        channel: SideChannel | None = None
        if self.writes and accepts_side_channel(child):
            channel = [self.number, extra, ()]
            result = child(*args, purefx_side_channel=channel, **kwargs)
        else:
            result = child(*args, **kwargs)
        convention = self.convention
        if not convention.outputs:
            return ()
        flat = self._leaves(result, child)
        if convention.single and convention.outputs[0] >= 0:
            return flat[convention.outputs[0]]
        values = self._values(flat, channel, child)
        return values[0] if convention.single else values

    def _leaves(self, result: Any, child: Any) -> Sequence[Any]:
        if not (self.out_spec.is_leaf() and type(result) in (tuple, list, dict)):
            try:
                return flatten(result, self.out_spec, "result")
            except InputError:
                pass
        return unpack(
            result, self.out_spec, described_call(self.path, self.convention.signature, child)
        )

    def _values(
        self, flat: Sequence[Any], channel: SideChannel | None, child: Any
    ) -> tuple[Any, ...]:
        convention = self.convention
        if convention.unnamed and channel is None:
            are, those = (
                ("are", "those values") if len(convention.unnamed) > 1 else ("is", "that value")
            )
            raise CallError(
                f"module {self.path} was replaced by a {type(child).__name__}, whose result does not contain "
                f"{', '.join(convention.unnamed)}, which {are} used outside of it: replace its parent, or return {those} too"
            )
        extra = channel[2] if channel is not None else ()
        return tuple(
            [
                flat[leaf] if leaf >= 0 else extra[index]
                for index, leaf in enumerate(convention.outputs)
            ]
        )


def accepts_side_channel(child: Any) -> bool:
    """Return whether a module passes the side channel on to the body.

    A wrapper may forward every attribute to the lowered module in it, but pass no other keywords on.

    >>> accepts_side_channel(torch.nn.ReLU())
    False
    """
    if "purefx_handlers" in uncompiled(child).__dict__:
        return True
    flags = getattr(getattr(child.forward, "__code__", None), "co_flags", inspect.CO_VARKEYWORDS)
    return hasattr(child, "purefx_handlers") and bool(flags & inspect.CO_VARKEYWORDS)


def packing(in_spec: Any) -> Callable[[Sequence[Any]], tuple[Sequence[Any], Mapping[str, Any]]]:
    """Return a function that packs leaves into positional and keyword arguments.

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


class CallHandler(Uncopied):
    """Runs one call of a module: the body, and its calling convention."""

    def __init__(self, place: Any, convention: Convention) -> None:
        self.place = place
        self.convention = convention
        self.tree = ArgumentTree.of(convention.signature.in_spec, convention.signature.arg_names)
        self.result = result_builder(convention.signature.out_spec)
        self.literals = [
            (at, leaf) for at, leaf in enumerate(convention.takes) if type(leaf) is not Ref
        ]
        """Literals that were baked into the body at export."""

    def values(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], channel: SideChannel | None
    ) -> list[Any]:
        """Return the inputs of the body.

        Raises:
            InputError: the nesting of the arguments differs from the exported one.
            InputValueError: an argument differs from the exported literal.
            CallError: the body needs values of its caller, but was called from outside.
        """
        try:
            leaves = self.tree.bind(args, kwargs)
        except InputError as error:
            raise InputError(f"module {self.place.path}: {error}") from None
        for at, literal in self.literals:
            if leaves[at] is not literal and not same_arg(literal, leaves[at]) and not is_tracing():
                expected = other_literal(self.tree.paths[at], literal)
                raise InputValueError(f"module {self.place.path}: {expected}, got {leaves[at]!r}")
        convention = self.convention
        if -1 in convention.inputs and channel is None:
            raise CallError(
                f"module {self.place.path} uses values of its caller that are not in its call signature: "
                "call the root module instead; a wrapper around the module must pass **kwargs on, and its attributes"
            )
        extra = iter(channel[1] if channel is not None else ())
        return [leaves[leaf] if leaf >= 0 else next(extra) for leaf in convention.inputs]


class CallHandlers(Uncopied, dict[int, CallHandler]):
    """The handlers of a module by call number; calls from outside use the first."""

    def of(self, channel: SideChannel | None) -> CallHandler:
        """Return the handler of a call."""
        if channel is not None and channel[0] in self:
            return self[channel[0]]
        return next(iter(self.values()))


def handling(run: Callable[[torch.nn.Module, Any, list[Any]], Any]) -> Callable[..., Any]:
    """Return the ``forward`` of a module with a preserved call signature.

    Args:
        run: runs the body at a place, on the state of a module.
    """

    def forward(
        self: Any, *args: Any, purefx_side_channel: SideChannel | None = None, **kwargs: Any
    ) -> Any:
        handler = self.purefx_handlers.of(purefx_side_channel)
        output, leaves = run(self, handler.place, handler.values(args, kwargs, purefx_side_channel))
        if purefx_side_channel is not None:
            purefx_side_channel[2] = (output,) if handler.convention.single else output
        return handler.result(leaves)

    return forward


def edited(forward: Callable[..., Any], handlers: CallHandlers) -> Callable[..., Any]:
    """Return the ``forward`` of a module with a preserved call signature whose fx graph was edited.

    The edited graph is that of the first call; other calls run as before.

    Args:
        forward: the function that fx generated from the graph.
        handlers: the handlers of the module.
    """
    first = handlers.of(None)

    def run(module: Any, place: Any, values: list[Any]) -> Any:
        return forward(module, *values) if place is first.place else place.body.run(module, *values)

    return handling(run)
