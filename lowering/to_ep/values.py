"""Fake values: those that the program carries, and those of nodes that a rewrite has put in, which are worked out.

One idea: an exported program has one fake mode, whose environment knows the symbols of its sizes.  It is the mode of the
program's own values; a value without one, or of another mode (a body from another export), is made again in it, by running
the operator on the fake values of its arguments.  No guard is installed, and nothing is computed.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ...ir.errors import UnsupportedProgram
from ...ir.meta import Meta
from ...ir.node import Node, Op
from ...ir.program import Program
from ...ir.signature import InputSpec, LiteralType, NumberType, ObjectType, StateInput, TensorType, Token, UserInput
from ...ir.torch_private import FakeTensor, OpOverload, fresh_bindings, schema_of
from ...ir.verify.inference import silence
from .fresh import Symbols, fresh_mode
from .targets import place_of

__all__ = ["Values"]

SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


class Values:
    """The fake values of one program."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.mode = _mode_of(program) or fresh_mode()
        self.symbols = Symbols(program, self.mode)
        self.bindings: dict[str, Any] = {}
        """For a node whose fake value was worked out, where new symbols of sizes that only a run knows stand in it."""

    def of_input(self, formal: Any, spec: InputSpec) -> Any:
        """Return the fake value of an input of the root; made from its type, or from the state, where it has none.

        Args:
            formal: the input.
            spec: what the signature says of it.

        Raises:
            UnsupportedProgram: no value can be made.
        """
        if "val" in formal.meta and self._is_ours(formal.meta["val"]):
            return formal.meta["val"]
        match spec:
            case StateInput(slot=slot):
                return self._of_state(self.program.state[slot].value)
            case Token():
                with self.mode:
                    return torch.empty(0)
            case UserInput(type=kind):
                return self._of_type(formal.name, kind)

    def _of_state(self, value: Any) -> Any:
        # A tensor of fixed sizes; an object that modules hold stands for itself.
        return self.mode.from_tensor(value, static_shapes=True) if isinstance(value, torch.Tensor) else value

    def _of_type(self, name: str, kind: Any) -> Any:
        match kind:
            case LiteralType(value=value):
                return value
            case TensorType(dtype=dtype, shape=shape, device=device):
                sizes = [self.symbols.number(size) for size in shape]
                with self.mode:
                    return torch.empty(sizes, dtype=dtype, device=device)
            case NumberType(kind="int", expr=expr) if expr is not None:
                return self.symbols.number(expr)
            case _:
                said = kind.description if isinstance(kind, ObjectType) else f"a {kind.kind} of any value"
                raise UnsupportedProgram(
                    f"the input {name!r} ({said}) has no fake value, and none can be made; "
                    "put one into its meta['val'], as import_fx does with example_inputs="
                )

    def of_operand(self, formal: Any, owner: Node, operand: Any) -> Any:
        """Return the fake value of an input of an operator's body: its own, or that of what the operator hands over."""
        if "val" in formal.meta and self._is_ours(formal.meta["val"]):
            return formal.meta["val"]
        assert type(owner.do) is Op
        if operand is None or owner.do.name.rpartition(".")[2] in SLICING:
            raise UnsupportedProgram(
                f"{place_of(owner)}: the input {formal.name!r} of its body has no fake value, and it can not be told from the "
                "operands; put one into its meta['val']"
            )
        return operand

    def told(self, node: Node) -> tuple[bool, Any]:
        """Return whether the meta of a node has a fake value that can stay, and the value."""
        if "val" not in node.meta:
            return _gives_nothing(node), None
        value = node.meta["val"]
        if not self._is_ours(value):
            return False, None
        return True, list(value) if type(value) is tuple and _gives_list(node) else value

    def inferred(self, node: Node, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Return what an operator gives for fake arguments.

        Args:
            node: whose value it is.
            target: its callable.
            args: fake values and literals; for a body, its module.
            kwargs: the same by name.

        Raises:
            UnsupportedProgram: the operator refuses them, or can not be run on fake values.
        """
        writes = type(node.do) is Op and bool(node.do.effects.writes)
        with _running(self.mode):
            try:
                taken = [self._taken(arg, fresh=writes) for arg in args]
                value = target(*taken, **{key: self._taken(part, fresh=writes) for key, part in kwargs.items()})
                bindings = fresh_bindings(self.mode.shape_env, value)
            except Exception as error:
                said = (str(error) or type(error).__name__).splitlines()[0]
                raise UnsupportedProgram(
                    f"{place_of(node)}: it has no fake value, and its operator does not take those of its arguments ({said}); "
                    "mend the node, or put what it gives into meta['val']"
                ) from error
        if bindings:
            self.bindings[node.name] = bindings
        return value

    def _taken(self, arg: Any, *, fresh: bool) -> Any:
        # An operator that writes may change the shape of what it takes, which others go on to use.
        if fresh and isinstance(arg, FakeTensor):
            return torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device=arg.device)
        return arg

    def _is_ours(self, value: Any) -> bool:
        mine = self.mode
        return all(mode is mine for mode in _modes_in(value)) and all(env is mine.shape_env for env in _environments_in(value))


SLICING = frozenset({"map_impl", "map", "scan", "associative_scan", "flex_attention", "flex_attention_backward"})
"""Operators whose bodies take other shapes than the operator."""


@contextmanager
def _running(mode: Any) -> Generator[None, None, None]:
    with ExitStack() as stack:
        stack.enter_context(silence())
        stack.enter_context(torch.no_grad())
        for device in ("cpu", "cuda"):
            stack.enter_context(torch.autocast(device, enabled=False))
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.suppress_guards())
        stack.enter_context(mode)
        yield


def _gives_nothing(node: Node) -> bool:
    # Such an operator is not run: it may print, or fail where an assertion does not hold of fake values.
    target: Any = node.do.target if type(node.do) is Op else None
    return isinstance(target, OpOverload) and not schema_of(target).returns


def _gives_list(node: Node) -> bool:
    target: Any = node.do.target if type(node.do) is Op else None
    return isinstance(target, OpOverload) and len(schema_of(target).returns) == 1


def _modes_in(value: Any) -> Iterator[Any]:
    todo = [value]
    while todo:
        part = todo.pop()
        if isinstance(part, FakeTensor):
            yield part.fake_mode
        elif isinstance(part, tuple | list):
            todo.extend(part)


def _environments_in(value: Any) -> Iterator[Any]:
    parts = value if isinstance(value, tuple | list) else (value,)
    return (part.node.shape_env for part in parts if isinstance(part, SYMBOLIC))


def _mode_of(program: Program) -> Any:
    # The mode of the user's inputs, which know the dynamic sizes; else that of anything.
    pairs = list(zip(program.main.inputs, program.signature.inputs, strict=True))
    formals = sorted(pairs, key=lambda pair: type(pair[1]) is not UserInput)
    metas: list[Meta] = [formal.meta for formal, _ in formals]
    metas += [node.meta for node in program.main.nodes]
    for meta in metas:
        for mode in _modes_in(meta.get("val")):
            return mode
    return None
