"""``TrainingPrograms``: call the forward and the backward program of a training module.

The backward runs on values that the forward saved, including the parameters at that time, so it reads no module.  It runs
in versions that omit unneeded gradients and gradients that do not depend on a tangent.  Objects here contain no tensors of
a module, so copies of a module share them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

import torch
from attrs import define

from ...ir.arguments import Ref
from ...ir.effects.resolved import node_effects
from ...ir.errors import InputValueError, UnsupportedProgram
from ...ir.graph import Get, Graph, Input, Node, Uncopied
from ...ir.names import word_of
from ...ir.program import Program
from ...ir.signature import (
    GIVEN,
    InputGradient,
    InputMutation,
    ObjectType,
    OutputSpec,
    Signature,
    StateGradient,
    StateInput,
    StateMutation,
    UserInput,
    UserOutput,
)
from ...ir.state import SlotKind, is_strided
from ...ir.torch_private import device_of
from ...transforms.inline import inline
from ...transforms.simplify.dead_code import eliminate_dead_code
from ...transforms.state import lift_state
from ...transforms.training import Partition
from ..code.compiled import Body, code_of, deferred
from ..code.source import BodySource, Table, write_body
from ..lower import lower_unchecked
from ..modules.interpreter import note_from_traceback

VERSIONS = 64
"""The number of cached versions of a backward."""


class Request(NamedTuple):
    """The gradients that one backward computes."""

    needed: tuple[bool, ...]
    """Whether each operand of the step requires a gradient."""
    used: tuple[bool, ...]
    """Whether the output of each tangent was used."""


Like = tuple[torch.Size, torch.dtype, torch.device]


class TrainingPrograms(Uncopied):
    """The programs of a training module.

    Args:
        cut: the forward and the backward program.
        device: replaces all devices in them.
    """

    def __init__(self, cut: Partition, device: torch.device | None = None) -> None:
        forward, backward = cut.forward, cut.backward
        results, gradients = (
            [one for one in half.signature.outputs if type(one) in GIVEN]
            for half in (forward, backward)
        )
        self.outputs = len(results) - len(cut.saved)
        """The number of leaves that the caller gets."""
        tangents = [(formal, spec.tangent_of) for formal, spec in backward.user_inputs]
        self.tangents = tuple([number for _, number in tangents if number is not None])
        """For each tangent of the backward, the number of its output."""
        formals = [formal for formal, number in tangents if number is not None]
        self.tangent_names, self.layouts = (
            [formal.name for formal in formals],
            [_strides(formal) for formal in formals],
        )
        of_slot = {
            spec.slot: number
            for number, spec in enumerate(gradients)
            if type(spec) is StateGradient
        }
        of_leaf = {
            spec.leaf: number
            for number, spec in enumerate(gradients)
            if type(spec) is InputGradient
        }
        leaves = len(forward.signature.users)
        self.slots = tuple(of_slot)
        """The slots with gradients."""
        self.places = (*of_slot.values(), *[of_leaf.get(number) for number in range(leaves)])
        """For each operand of the step (slots, then leaves), the index of its gradient in the results of the backward."""
        self.frozen = _frozen(forward, self.slots)
        """The parameters without gradients."""
        self.refused = _refused(forward, of_leaf)
        """The error messages for leaves that must not require a gradient, by number."""
        self.moved_to = device
        self.program, self.state = explicit(backward)
        """The backward, and the slots that it accepts as inputs."""
        self.full = in_place_call(self.program, device=device)
        self.versions: dict[Request, InPlaceCall] = {}
        self.read_slots, self.read_frozen, self.read_state = map(
            reader, (self.slots, self.frozen, self.state)
        )

    def check(self, module: torch.nn.Module, leaves: Sequence[Any]) -> None:
        """Raise if gradients of a call would be missing.

        Args:
            module: the module.
            leaves: the leaves of the call.

        Raises:
            InputValueError: an argument requires a gradient, but the program does not compute it, or writes the argument.
            UnsupportedProgram: a parameter requires a gradient that the program does not compute.
        """
        for name, value in zip(self.frozen, self.read_frozen(module), strict=True):
            if isinstance(value, torch.Tensor) and value.requires_grad:
                raise UnsupportedProgram(
                    f"{name} requires a gradient, but did not when the program was captured, so none is computed: call "
                    "requires_grad_() and capture the program again"
                )
        for number, leaf in enumerate(leaves):
            if (
                isinstance(leaf, torch.Tensor)
                and leaf.requires_grad
                and (message := self.refused.get(number))
            ):
                raise InputValueError(message)

    def gradients(
        self,
        values: list[Any],
        likes: Sequence[Like],
        gradients: Sequence[torch.Tensor | None],
        needed: tuple[bool, ...],
    ) -> list[Any]:
        """Return the gradient of each operand of the step; None for unneeded ones.

        Args:
            values: the saved values, then the state; empty afterwards.
            likes: shape, dtype and device of each tangent.
            gradients: the gradients of the outputs; None for unused ones.
            needed: whether each operand requires a gradient.
        """
        kept, incoming = (
            len(values) - len(self.state),
            [gradients[number] for number in self.tangents],
        )
        tangents = [
            _or_zeros(gradient, like) for gradient, like in zip(incoming, likes, strict=True)
        ]
        compiling = torch.compiler.is_compiling()
        if not compiling:
            tangents = [
                _laid(tangent, strides)
                for tangent, strides in zip(tangents, self.layouts, strict=True)
            ]
        request = Request(needed, tuple([gradient is not None for gradient in incoming]))
        box = [*values[:kept], *tangents, *values[kept:]]
        values.clear()
        del incoming, tangents
        if compiling:
            results = self.full.run(self.full.module, box)
        else:
            results = (self.versions.get(request) or self._version(request))(box)
        return [None if place is None else results[place] for place in self.places]

    def _version(self, request: Request) -> InPlaceCall:
        wanted = self._wanted(request)
        found = (
            self.full
            if all(wanted)
            else in_place_call(with_results(self.program, wanted), device=self.moved_to)
        )
        if len(self.versions) >= VERSIONS:
            self.versions.clear()
        self.versions[request] = found
        return found

    def _wanted(self, request: Request) -> list[bool]:
        # Other results are always computed; gradients if they are needed and depend on a used tangent.
        needed = {
            place for place, needed in zip(self.places, request.needed, strict=True) if needed
        }
        graph, gradient = self.program.main, set(self.places)
        alive: Collection[str] | None = (
            None  # all; also with writes, as memory may propagate a tangent
        )
        if not all(request.used) and not any(node.declared.writes for node in graph.nodes):
            alive = reached(
                graph,
                {name for name, used in zip(self.tangent_names, request.used, strict=True) if used},
            )
        given = [arg for arg, spec in self.program.outputs if type(spec) in GIVEN]
        return [
            number not in gradient
            or (number in needed and (alive is None or type(arg) is not Ref or arg.name in alive))
            for number, arg in enumerate(given)
        ]


def _strides(formal: Input) -> tuple[int, ...] | None:
    # None if they depend on sizes.
    value = formal.val
    if not is_strided(value):
        return None
    strides = tuple(value.stride())
    return strides if all(type(stride) is int for stride in strides) else None


def _or_zeros(gradient: torch.Tensor | None, like: Like) -> torch.Tensor:
    size, dtype, device = like
    return torch.zeros(size, dtype=dtype, device=device) if gradient is None else gradient


def _laid(tangent: torch.Tensor, strides: tuple[int, ...] | None) -> torch.Tensor:
    # Use the captured layout: autograd formulas copy non-contiguous tangents before some kernels,
    # and a trace has no such branch.
    if strides is None:
        return tangent.contiguous()
    if tangent.stride() == strides:
        return tangent
    return torch.empty_strided(
        tangent.shape, strides, dtype=tangent.dtype, device=device_of(tangent)
    ).copy_(tangent)


def _frozen(forward: Program, slots: Collection[str]) -> tuple[str, ...]:
    known = {forward.state[slot].cell for slot in slots}
    found: dict[int, str] = {}
    for name, slot in forward.state.pairs:
        if slot.cell not in known and slot.kind is SlotKind.PARAMETER:
            found.setdefault(slot.cell, name)
    return tuple(found.values())


def _refused(forward: Program, gradients: Collection[int]) -> dict[int, str]:
    written = {
        forward.main.inputs[spec.index].name
        for spec in forward.signature.outputs
        if type(spec) is InputMutation
    }
    written |= {name for effects in node_effects(forward, forward.main) for name in effects.writes}
    found: dict[int, str] = {}
    for number, (formal, spec) in enumerate(forward.user_inputs):
        name = spec.argument or formal.name
        if number not in gradients:
            found[number] = (
                f"the argument {name} requires a gradient, but did not when the program was captured, so none is "
                f"computed: pass {name}.detach(), or capture the program with an argument that requires one"
            )
        elif formal.name in written:
            found[number] = (
                f"the argument {name} is written in place and requires a gradient; pass {name}.detach().clone()"
            )
    return found


# -- programs -------------------------------------------------------------------------------------------------------------------


def explicit(original: Program) -> tuple[Program, tuple[str, ...]]:
    """Return a program as a function of user inputs and of the state that it reads or writes, and the slots of that state.

    Args:
        original: any program without effect tokens; calls of modules are inlined.

    Raises:
        UnsupportedProgram: the body of an operator reads state.

    >>> explicit(Program.of({"": Graph((), (), ())}))[1]
    ()
    """
    program = lift_state(inline(original))
    if any(program.graphs[name].reads for name in program.order):
        raise UnsupportedProgram(
            "the body of an operator reads state, which a training module does not support in its backward"
        )
    graph, names = program.main, program.main.names()
    state = {spec.slot: formal for formal, spec in program.inputs if type(spec) is StateInput}
    for spec in program.signature.outputs:
        if type(spec) is StateMutation and spec.slot not in state:
            state[spec.slot] = Input(names.fresh(word_of(spec.slot)))
    formals = (*[formal for formal, _ in program.user_inputs], *state.values())
    position = {formal.name: number for number, formal in enumerate(formals)}
    outputs: list[OutputSpec] = []
    for spec in program.signature.outputs:
        match spec:
            case StateMutation(slot=slot):
                outputs.append(InputMutation(position[state[slot].name]))
            case InputMutation(index=index):
                outputs.append(InputMutation(position[graph.inputs[index].name]))
            case _:
                outputs.append(UserOutput())
    signature = Signature(
        tuple([UserInput(ObjectType(), formal.name) for formal in formals]), tuple(outputs)
    )
    graphs = {name: program.graphs[name] for name in program.order}
    graphs[program.root] = Graph(formals, graph.nodes, graph.output)
    return Program.of(graphs, root=program.root, signature=signature), tuple(state)


def with_results(program: Program, wanted: Sequence[bool]) -> Program:
    """Return a program that computes only some results, and returns None for the others; keep its effects.

    Args:
        program: a program from ``explicit``.
        wanted: whether to compute each result.

    >>> with_results(Program.of({"": Graph((), (), ())}), []).main.output
    ()
    """
    graph, flags = program.main, iter(wanted)
    output = tuple(
        [arg if type(spec) not in GIVEN or next(flags) else None for arg, spec in program.outputs]
    )
    return eliminate_dead_code(program.with_main(Graph(graph.inputs, graph.nodes, output))).evolve(
        trail=()
    )


def reached(graph: Graph, names: Collection[str]) -> frozenset[str]:
    """Return some values of a graph and all values that depend on them.

    >>> from purefx.ir import Op
    >>> sorted(reached(Graph((Input("x"),), (Node("y", Op("toy.neg"), (Ref("x"),)),), ()), {"x"}))
    ['x', 'y']
    """
    found = set(names)
    for node in graph.nodes:
        if not found.isdisjoint(node.refs()):
            found.add(node.name)
    return frozenset(found)


# -- code -----------------------------------------------------------------------------------------------------------------------


@define(eq=False)
class InPlaceCall:
    """A program that runs on a list of operands and empties the list.

    Python keeps the arguments of a call alive until it returns.  With an emptied list, operands are freed after their last use,
    as in autograd.
    """

    module: torch.nn.Module
    """The lowered program, with the bodies of operators, without state."""
    run: Callable[[torch.nn.Module, list[Any]], Any]
    codes: dict[CodeType, Body]

    def __call__(self, box: list[Any]) -> Any:
        """Run the program.

        Args:
            box: its operands in order; empty afterwards.
        """
        try:
            return self.run(self.module, box)
        except Exception as error:
            note_from_traceback(error, self.codes)
            raise


def in_place_call(program: Program, *, device: torch.device | None = None) -> InPlaceCall:
    """Return the in-place call of a program without state.

    Args:
        program: a program from ``explicit``.
        device: replaces all devices in the program.

    >>> from purefx.ir.operators import op_of
    >>> graph = Graph((Input("x"),), (Node("y", op_of(torch.ops.aten.neg.default), (Ref("x"),)),), (Ref("y"),))
    >>> signature = Signature((UserInput(ObjectType(), "x"),), (UserOutput(),))
    >>> box = [torch.ones(1)]
    >>> in_place_call(Program.of({"": graph}, signature=signature))(box), box
    ((tensor([-1.]),), [])
    """
    module: Any = lower_unchecked(program, "graph_module", device)
    body: Body = module.purefx_place.body
    codes: dict[CodeType, Body] = module.purefx_codes

    def write() -> tuple[CodeType, Mapping[str, Any]]:
        table = body.new_table()
        source = write_body(body.runs, table, body.sites)
        code = code_of(
            "in_place(self, v0)",
            [f"{_unpacked(body.runs, source)}{source.lines[0]}", *source.lines[1:]],
        )
        codes[code] = body
        return code, table.values

    return InPlaceCall(module, deferred(write, "in_place", parameters=1), codes)


def _unpacked(graph: Graph, source: BodySource) -> str:
    # On the line of the first node, because line numbers identify the running node.
    if not source.parameters:
        return ""
    used = {name for node in graph.nodes for name in node.refs()} | set(graph.output_refs())
    formals = zip(graph.inputs, source.parameters, strict=True)
    unused = "".join(
        [f"{register} = None; " for formal, register in formals if formal.name not in used]
    )
    return f"box = v0; {', '.join(source.parameters)}, = box; box.clear(); {unused}"


def reader(slots: tuple[str, ...]) -> Callable[[torch.nn.Module], tuple[Any, ...]]:
    """Return a function that reads state of a lowered module, as its code does.

    Args:
        slots: the full names.

    >>> reader(("weight",))(torch.nn.Linear(2, 1))[0].shape
    torch.Size([1, 2])
    """

    def write() -> tuple[CodeType, Mapping[str, Any]]:
        table = Table()
        reads = tuple([Node(f"s{number}", Get(slot)) for number, slot in enumerate(slots)])
        source = write_body(Graph((), reads, tuple([Ref(node.name) for node in reads])), table)
        return code_of("read(self)", source.lines), table.values

    return deferred(write, "read", parameters=0)
