"""``Candidate``: a value of a joint program that the backward may need, with the cost of saving and of recomputing it.

``Table`` lists them with the constraints of a partition: random operators and effects never run twice, and a value is
recomputed only if the memory of its operands is unchanged.  The policy chooses which candidates are saved.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Any

import torch
from attrs import frozen

from ...ir.analysis.numbers import NUMBERS, SYMBOLIC
from ...ir.arguments import Ref, refs_in
from ...ir.forks import cached_property
from ...ir.graph import Get, Node, Op, Stack
from ...ir.meta import Meta
from ...ir.own_operators import is_boundary
from ...ir.signature import InputMutation, StateInput, StateMutation
from ...ir.tensors import tensors_among
from ...ir.torch_private import size_number
from ..memory import computes, is_view
from .phases import GRADIENTS, Shape, tangents


@frozen
class Candidate:
    """A value that the forward can save for the backward.

    >>> Candidate("y", "aten.relu.default", 16).fixed
    ''
    """

    name: str
    operator: str
    bytes: int
    """Its size in bytes, at the sizes of the example; 0 if unknown."""
    operands: tuple[str, ...] = ()
    """Its operands; those that are not candidates (parameters, buffers, arguments) are available in the backward."""
    stack: Stack = ()
    """The module calls around it, outermost first."""
    forward: bool = True
    """Whether the forward computes it in any case; otherwise the backward does, unless it is saved."""
    needed: bool = False
    """Whether it is a gradient, or an operand of a node of the backward that depends on gradients."""
    fixed: str = ""
    """The reason why it must not be recomputed: it is saved if the backward needs it."""
    storable: bool = True
    """Whether it is a single value that can be saved; each of several results is one."""
    view: bool = False
    """Whether it always aliases its one operand, so that recomputing it is free."""
    work: float = 0.0
    """The approximate cost of computing it: operations of matrix products, bytes moved by other operators."""
    number: bool = False
    """Whether it is a size or another number."""

    @property
    def path(self) -> str:
        """The path of the innermost module around it.

        >>> Candidate("y", "aten.relu.default", 16).path
        ''
        """
        return self.stack[-1].path if self.stack else ""


class Table:
    """The candidates of a joint program, and the nodes that the backward always runs.

    Args:
        shape: the relation of the program.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.graph = shape.graph
        self.tangents = frozenset(tangents(shape.program))
        self.forward = shape.forward()
        """The nodes that the forward always runs."""
        self._last_written: dict[object, int] = {}
        self._record_writes()
        self.backward = self._backward()
        """The nodes that only the backward can run."""

    def _record_writes(self) -> None:
        # The last write to each memory; new contents are stored after all nodes.
        shape, end = self.shape, len(self.graph.nodes)
        for number, effect in enumerate(shape.effects):
            if effect.writes or effect.writes_slots or effect.completes:
                self._last_written.update(dict.fromkeys(shape.memory.touched(effect), number))
        for memory in self._stored(early=True) | self._stored(early=False):
            self._last_written[memory] = end

    def _backward(self) -> set[int]:
        # If nothing depends on a tangent or on the loss, it is unknown which nodes compute gradients.
        found, unknown = set[int](), not (self.shape.bound or self.tangents)
        for number, node in enumerate(self.graph.nodes):
            if number in self.forward:
                continue
            late = unknown or number in self.shape.bound or self.fixed(number, node)
            if late or not found.isdisjoint(self.shape.edges[number]):
                found.add(number)
        return found

    def fixed(self, number: int, node: Node) -> str:
        """Return why a node must not be moved or run twice; empty if it may."""
        effect = self.shape.effects[number]
        if not computes(effect) or is_boundary(node):
            return "it draws random numbers" if effect.random else "it has effects"
        if number in self.shape.inside:
            return "it runs in a region"
        if type(node.do) is Get or is_view(node):
            return ""  # it reads no contents
        memory = self.shape.memory
        for name in (node.name, *node.refs()):
            if self._last_written.get(memory.find(name), -1) > number:
                return f"the memory of {name} is written later"
        return ""

    @cached_property
    def free(self) -> frozenset[str]:
        """The inputs and reads that the backward can use directly: the forward does not change their memory."""
        names = [*self.graph.input_names, *self.graph.reads]
        return frozenset([name for name in names if not self._changes(name)])

    def _changes(self, name: str) -> bool:
        # Whether the forward changes the memory of a value; a value that the backward writes cannot be a copy.
        memory = self.shape.memory.find(name)
        return memory in self._changed_by_forward and memory not in self._written_by_backward

    def _is_several(self, node: Node) -> bool:
        # Whether it is several values in one; if its type is unknown, its users tell.
        unpacked_calls = "val" not in node.meta and any(
            user.projection is not None for user in self.graph.users_of(node.name)
        )
        return unpacked_calls or isinstance(node.val, tuple | list)

    @cached_property
    def _written_by_backward(self) -> frozenset[object]:
        return self.shape.written_in(self.backward) | self._stored(early=False)

    @cached_property
    def _changed_by_forward(self) -> frozenset[object]:
        return self.shape.written_in(self.forward) | self._stored(early=True)

    def _stored(self, *, early: bool) -> frozenset[object]:
        # The memory that new contents are stored to, by outputs of the forward or of the backward.
        specs = enumerate(self.shape.program.signature.outputs)
        return frozenset(
            [
                self._target(spec)
                for number, spec in specs
                if type(spec) in STORED and (number not in self.late_outputs) is early
            ]
        )

    @cached_property
    def late_outputs(self) -> frozenset[int]:
        """The numbers of the outputs of the backward: gradients, and new contents that are not final before it.

        New contents are not final if only the backward can compute them, or if it changes their memory or the
        memory that they are stored to.
        """
        outputs = list(enumerate(self.shape.program.outputs))
        behind = set(
            self.shape.written_in(set(range(len(self.graph.nodes))).difference(self.forward))
        )
        late = {number for number, (_, spec) in outputs if type(spec) in GRADIENTS}
        while True:
            found = {
                number: self._target(spec)
                for number, (arg, spec) in outputs
                if number not in late
                and type(spec) in STORED
                and not self._is_settled(arg, self._target(spec), behind)
            }
            if not found:
                return frozenset(late)
            late.update(found)
            behind.update(found.values())

    def _target(self, spec: Any) -> object:
        memory = self.shape.memory
        if type(spec) is StateMutation:
            return next(iter(memory.of_slots([spec.slot])))
        return memory.find(self.graph.inputs[spec.index].name)

    def _is_settled(self, arg: Any, target: object, behind: Collection[object]) -> bool:
        if target in behind:
            return False
        if not isinstance(arg, Ref):
            return True
        number = self.shape.position.get(arg.name)
        there = arg.name not in self.tangents if number is None else number in self.forward
        return there and self.shape.memory.find(arg.name) not in behind

    def kind_of(self, name: str) -> str:
        """Return the kind of a value: ``"intermediate"`` for a tensor, ``"size"`` for a number, ``"object"`` for others."""
        value = self.graph.metas[name].get("val")
        return (
            "intermediate"
            if isinstance(value, torch.Tensor)
            else "size"
            if isinstance(value, NUMBERS)
            else "object"
        )

    def changes_outside(self, name: str) -> bool:
        """Return whether a value aliases state or an argument that the forward changes: a copy of it is saved."""
        return self.shape.memory.is_outside(name) and self._changes(name)

    @cached_property
    def candidates(self) -> Mapping[str, Candidate]:
        """All candidates in the order of the graph; inputs that the forward changes first."""
        needed = set(self.needed)
        found: dict[str, Candidate] = {}
        for formal, spec in self.shape.program.inputs:
            if formal.name not in self.free and formal.name not in self.tangents:
                kind = "state" if type(spec) is StateInput else "input"
                size = example_bytes(formal.val)
                why = "the forward changes it"
                found[formal.name] = Candidate(
                    formal.name, kind, size, needed=formal.name in needed, fixed=why
                )
        for number, node in enumerate(self.graph.nodes):
            if number not in self.backward and node.name not in self.free:
                found[node.name] = self._candidate(number, node, found, needed=node.name in needed)
        return found

    def _candidate(
        self, number: int, node: Node, known: Mapping[str, Candidate], *, needed: bool
    ) -> Candidate:
        value = node.val
        fixed = self.fixed(number, node)
        if type(node.do) is Get:
            fixed = "the forward changes it"
        elif node.projection is not None and (whole := known.get(node.projection[0])) is not None:
            fixed = fixed or whole.fixed  # its operator is not run again
        view = is_view(node) and len(self.shape.effects[number].aliases) == 1
        return Candidate(
            node.name,
            node.op_name or "state",
            example_bytes(value),
            operands=tuple(dict.fromkeys(node.refs())),
            stack=node.stack,
            forward=number in self.forward,
            needed=needed,
            fixed=fixed,
            storable=not self._is_several(node)
            and not (view and self.shape.memory.find(node.name) in self._written_by_backward),
            view=view,
            work=0.0 if view else work_of(node, self.graph.metas),
            number=isinstance(value, NUMBERS),
        )

    @cached_property
    def running(self) -> tuple[int, ...]:
        """The nodes that the backward always runs, in order, without unneeded ones."""
        used, kept = set(self.gradients), list[int]()
        for number in sorted(self.backward, reverse=True):
            node = self.graph.nodes[number]
            if node.name in used or not computes(self.shape.effects[number]):
                used.update(node.refs())
                kept.append(number)
        return tuple(reversed(kept))

    @cached_property
    def gradients(self) -> tuple[str, ...]:
        """The results of the backward: gradients, and new contents that depend on them."""
        late = [arg for number, arg in enumerate(self.graph.output) if number in self.late_outputs]
        return tuple(dict.fromkeys([arg.name for arg in late if isinstance(arg, Ref)]))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """The inputs of the backward, in order: operands of its own nodes, and gradients that it does not compute."""
        names = [name for number in self.running for name in self.graph.nodes[number].refs()]
        return tuple(
            dict.fromkeys([name for name in [*names, *self.gradients] if not self.is_late(name)])
        )

    def is_late(self, name: str) -> bool:
        """Return whether a value is a tangent, or can only be computed in the backward."""
        number = self.shape.position.get(name)
        return name in self.tangents if number is None else number in self.backward

    def after(self, names: Iterable[str]) -> set[int]:
        """Return the nodes of the forward if it also computes some given values."""
        extra = self.shape.numbers(names)
        return (
            self.forward
            if self.forward.issuperset(extra)
            else self.forward | self.shape.before(extra)
        )


STORED = (StateMutation, InputMutation)


HEAVY = frozenset({
    "mm", "bmm", "addmm", "addbmm", "baddbmm", "matmul", "linear", "bilinear", "einsum", "mv", "addmv", "dot", "vdot",
    "tensordot", "inner", "chain_matmul", "convolution", "_convolution", "convolution_overrideable", "mkldnn_convolution",
    "cudnn_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "convolution_backward", "scaled_dot_product_attention", "_grouped_mm", "_scaled_mm", "_scaled_grouped_mm", "_int_mm",
    "_weight_int8pack_mm", "cdist", "_cdist_forward", "_pdist_forward", "lstm", "gru", "rnn_tanh", "rnn_relu",
    "_thnn_fused_lstm_cell", "_cudnn_rnn", "mkldnn_rnn_layer", "sort", "topk", "argsort", "kthvalue", "median", "unique_dim",
    "_unique2", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d", "grid_sampler_2d", "grid_sampler_3d",
    "matrix_exp", "cholesky", "lu_unpack",
})  # fmt: skip
"""Operators of torch that cost more than one pass over their operands and results."""

HEAVY_PARTS = ("attention", "linalg", "_fft_", "fft_", "conv")
"""Parts of the names of such operators."""


def is_heavy(operator: str) -> bool:
    """Return whether an operator costs more than one pass over its operands and results, or is outside of torch.

    >>> is_heavy("aten.mm.default"), is_heavy("aten._scaled_dot_product_flash_attention.default"), is_heavy("aten.gelu.default")
    (True, True, False)
    """
    name = operator.split(".")[1] if "." in operator else operator
    if not operator.startswith(("aten.", "prims.", "operator.", "math.", "builtins.", "torch.")):
        return True
    return name in HEAVY or any(part in name for part in HEAVY_PARTS)


def work_of(node: Node, metas: Mapping[str, Meta]) -> float:
    """Return the approximate cost of running a node: the bytes that it moves, and more for matrix products.

    Args:
        node: a node of a graph.
        metas: the metadata of the values of the graph.

    >>> from purefx.ir import Ref
    >>> x = {"val": torch.ones(4, 4)}
    >>> [work_of(Node("y", Op(name), (Ref("x"), Ref("x")), meta=x), {"x": x}) for name in ("aten.mul.Tensor", "aten.mm.default")]
    [192.0, 704.0]
    """
    operands = [metas[name].get("val") for name in refs_in(node.args, node.kwargs) if name in metas]
    value = node.val
    moved = float(example_bytes(value) + sum(map(example_bytes, operands)))
    if type(node.do) is not Op or not is_heavy(node.do.name):
        return moved
    return moved + 8.0 * _multiplied(value, operands)


def _multiplied(value: Any, operands: list[Any]) -> float:
    # Each element of the result is a sum of about this many products.
    tensors = [tensor for tensor in tensors_among(operands) if tensor.dim()]
    results = tensors_among(value if isinstance(value, tuple | list) else [value])
    if not tensors or not results:
        return 0.0
    elements = prod([example_number(size) for size in results[0].shape])
    return float(elements * max(example_number(tensors[0].shape[-1]), 1))


def example_bytes(value: Any) -> int:
    """Return the number of bytes of a value, at the sizes of the example; a data-dependent size counts as 1.

    >>> example_bytes(torch.ones(2, 3)), example_bytes([torch.ones(2), 7]), example_bytes(None)
    (24, 16, 0)
    """
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            return 0
        return prod([example_number(size) for size in value.shape]) * value.element_size()
    if isinstance(value, tuple | list):
        parts: list[Any] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        return sum(map(example_bytes, parts))
    return 8 if isinstance(value, NUMBERS) else 0


def example_number(size: Any) -> int:
    """Return a size in the example; 1 if it is data-dependent.

    >>> example_number(3)
    3
    """
    if type(size) is int:
        return size
    known = size_number(size) if isinstance(size, SYMBOLIC) else size
    return 1 if known is None else int(known)
