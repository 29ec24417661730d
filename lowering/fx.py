"""Convert programs and fx passes: ``to_fx`` (a program as a plain fx graph), ``as_fx_pass`` and ``from_fx_pass``.

Passes accept a graph module, its graph, or an exported program; some edit their argument, some return a module, some a
``PassResult``; ``FxPass`` handles each kind.  Foreign passes do not know signatures, ties and calling conventions: they get
a copy in torch's classes, and the result becomes the body of the same program.
Check a pass with ``purefx.laws.check_fx_pass``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

import torch
import torch.fx
from attrs import evolve, frozen
from torch.fx.graph import CodeGen
from torch.fx.passes.infra.pass_base import PassResult

from ..ir.errors import ArgumentError, FxPassError, UnsupportedProgram
from ..ir.graph import Call
from ..ir.importing import import_ep, import_fx
from ..ir.own_operators import attribute_of
from ..ir.persistent import grouped
from ..ir.program import Program
from ..ir.state import Slot, State, same_value
from ..ir.tensors import TensorIds
from ..ir.torch_private import times_written
from ..ir.validation import a_program, a_result
from ..ir.verify import check
from ..transforms import (
    Fuel,
    RuleSet,
    Transformation,
    functionalize,
    inline,
    lift_state,
    transformation,
)
from .code.script import attach
from .lower import executable, lower
from .modules.module import Lowered, copy_graph
from .to_ep import make_ep


def as_fx_pass(
    transformation: Callable[[Program], Program], *, over: Over = "graph_module"
) -> Callable[[Any], Any]:
    """Convert a transformation to a pass over fx graphs, for the pass managers and hooks of torch.

    Args:
        transformation: a function from programs to programs: a ``Transformation``, a rule, or a set of rules.
        over: ``"graph_module"`` returns a function from a ``GraphModule`` to a ``PassResult``, for ``PassManager``, which
            does not modify its argument.  ``"graph"`` returns a function that edits a graph in place, for hooks of compilers.
            ``"exported_program"`` returns a function from exported programs to exported programs.

    Returns:
        A function named like the transformation.

    Raises:
        ArgumentError: ``over`` is none of the three.
        UnsupportedProgram: when called: the graph cannot be represented faithfully.

    >>> import torch, purefx as px
    >>> from torch.fx.passes.infra.pass_manager import PassManager
    >>> tanh = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> manager = PassManager(passes=[px.as_fx_pass(tanh)])
    >>> module = torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).module()
    >>> result = manager(module)
    >>> result.modified, result.graph_module(torch.ones(2))
    (True, tensor([0.7616, 0.7616]))
    """
    chosen = FxPass.of(transformation, over)  # raises for invalid arguments

    def changed(program: Program) -> Program | None:
        result = a_result(transformation(check(program)), chosen.name)
        return None if result is program else result

    def on_module(module: torch.fx.GraphModule) -> PassResult:
        result = changed(import_fx(module))
        made = module if result is None else lower(result, state="share")
        return PassResult(cast("torch.fx.GraphModule", made), modified=result is not None)

    def on_graph(graph: torch.fx.Graph) -> None:
        result = changed(import_fx(graph.owning_module or torch.fx.GraphModule({}, graph)))
        if result is not None:
            _put_into(graph, to_fx(inline(result)))

    def on_exported(ep: Any) -> Any:
        result = changed(import_ep(ep))
        return ep if result is None else exported(result)

    made: Any = {"graph_module": on_module, "graph": on_graph, "exported_program": on_exported}[
        over
    ]
    made.__name__ = made.__qualname__ = chosen.name
    return made


def _put_into(graph: torch.fx.Graph, new: torch.fx.GraphModule) -> None:
    # Keep the placeholders: owners of the graph may refer to them.
    owner, formals = graph.owning_module, graph.find_nodes(op="placeholder")
    for node in reversed([node for node in graph.nodes if node.op != "placeholder"]):
        graph.erase_node(node)
    known = dict(zip(new.graph.find_nodes(op="placeholder"), formals, strict=True))
    for node in new.graph.nodes:
        if node not in known:
            path = str(node.target)
            if node.op == "get_attr" and owner is not None and attribute_of(owner, path) is None:
                value = attribute_of(new, path)
                (attach if isinstance(value, torch.Tensor) else setattr)(owner, path, value)
            known[node] = graph.node_copy(node, known.__getitem__)


def exported(program: Program) -> Any:
    """Convert a program to an exported program, for passes over exported programs."""
    return make_ep(functionalize(lift_state(inline(program))))


def from_fx_pass(
    a_pass: Any, *, over: Over = "graph_module", name: str | None = None
) -> Transformation:
    """Convert a pass over fx graphs to a transformation, for pipelines of purefx.

    Args:
        a_pass: a function, a ``PassBase`` or a ``PassManager``; it may edit its argument, return a module or a
            ``PassResult``.  With a parameter ``fuel``, it gets a ``purefx.Fuel`` and must call ``fuel.burn(...)`` before each
            rewrite, so that ``purefx.bisect`` finds the wrong one.  Otherwise a run counts as one rewrite.
        over: the type of its argument: ``"graph_module"``, ``"graph"`` or ``"exported_program"``.
        name: the name of the transformation; by default the name of the pass.

    Returns:
        A transformation of flat programs, verified after every run.  The program is not modified: the pass gets
        a copy.  Inputs, outputs, modules and constraints are kept; unchanged state is shared with the program.

    Raises:
        FxPassError: it is not a pass; when called: it did not return a graph module with the same inputs and outputs.
        InvalidProgram: when called: the result breaks invariants.
        UnsupportedProgram: when called: the result cannot be represented faithfully.

    >>> import torch, purefx as px
    >>> from torch.fx.passes.tools_common import legalize_graph
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> ordered = px.from_fx_pass(legalize_graph)
    >>> ordered.name, ordered(program) is program
    ('legalize_graph', True)
    """
    if isinstance(a_pass, Transformation | RuleSet):
        raise FxPassError(
            f"{a_pass.name} takes programs, not fx graphs: pass {a_pass.name} itself to transform"
        )
    called = FxPass.of(a_pass, over)

    def apply(program: Program, **options: Any) -> Program:
        if called.over == "exported_program":
            return check(import_ep(called.on_export(exported(program), **options)))
        module = to_fx(program)
        before, tensors = snapshot(module), paths_of(module)
        result = called.on_module(module, **options)
        if result is module and same_graph(before, snapshot(module)):
            return program
        return with_result(program, result, called.name, tensors=tensors)

    def run(program: Program, *, fuel: Fuel) -> Program:
        if called.takes_fuel:
            return apply(program, fuel=fuel)
        result = apply(program)
        return result if result is program or fuel.burn("run", called.name) else program

    run.__name__ = run.__qualname__ = name or called.name
    run.__doc__ = getattr(a_pass, "__doc__", None)
    return transformation(requires={"flat"})(run)


def paths_of(module: torch.nn.Module) -> Mapping[str, Any]:
    """Return the tensors of a module by path, to find them again where a pass moves them."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(
        module.named_buffers(remove_duplicate=False)
    )


def with_result(
    program: Program,
    module: torch.fx.GraphModule,
    name: str,
    *,
    tensors: Mapping[str, Any] = MappingProxyType({}),
) -> Program:
    """Return a program with its graph replaced by the result of a pass.

    Args:
        program: the flat program.
        module: the result of the pass on ``to_fx(program)``.
        name: the name of the pass, for messages.
        tensors: the tensors of ``to_fx(program)`` by path, to identify state that the pass has moved.

    Raises:
        FxPassError: inputs or outputs differ.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> [node.name for node in with_result(program, px.to_fx(program), "nothing").main.nodes]
    ['relu']
    """
    made, was = import_fx(module), executable(program)
    _check_interface(made, was, name)
    new = [module for module in made.modules if module.path not in program.types]
    modules = (*program.modules, *new)
    result = evolve(
        made,
        state=_state(program.state, made.state, tensors),
        signature=was.signature,
        constraints=program.constraints,
        modules=modules,
        facts=(program.facts - {"state as inputs", "flat"}) | made.facts,
        trail=program.trail,
    )
    return check(result)


def _check_interface(made: Program, was: Program, name: str) -> None:
    takes, expected = ([formal.name for formal, _ in one.user_inputs] for one in (made, was))
    if len(takes) != len(expected):
        raise FxPassError(
            f"the pass {name} returned a graph with {len(takes)} inputs ({', '.join(takes)}), but the program takes "
            f"{len(expected)} ({', '.join(expected)}); keep the placeholders"
        )
    returned, wanted = len(made.main.output), len(was.main.output)
    if returned != wanted:
        raise FxPassError(
            f"the pass {name} returned a graph with {returned} outputs, but the program returns {wanted}"
        )


def _state(before: State, after: State, tensors: Mapping[str, Any]) -> State:
    """Return the state after a pass: unchanged tensors are those of the program, in the same order."""
    paths = {id(tensor): path for path, tensor in reversed([*tensors.items()]) if path in before}
    was = {
        name: name if name in before else paths.get(id(slot.value), name)
        for name, slot in after.pairs
    }
    values = _unchanged(before, after, was)
    ids, slots = TensorIds(), dict[str, Slot]()
    for name in (*before, *[name for name in after if name not in before]):
        slot = after[name] if name in after else before[name]
        known = before.slots.get(name, slot)  # fx registers constants as buffers
        slots[name] = ids.slot(
            values.get(name, slot.value), known.kind, persistent=known.persistent
        )
    return State().with_slots(slots)


def _unchanged(before: State, after: State, was: Mapping[str, str]) -> dict[str, Any]:
    # By memory: overlapping tensors are treated together, so that they still overlap.
    found: dict[str, Any] = {}
    for names in grouped([(slot.storage, name) for name, slot in after.pairs]).values():
        same = all(
            was[name] in before and same_value(before[was[name]].value, after[name].value)
            for name in names
        )
        if same and _ties(before, [was[name] for name in names]) == _ties(after, names):
            found.update({name: before[was[name]].value for name in names})
    return found


def _ties(state: State, names: list[str]) -> list[tuple[int, int]]:
    cells = [state[name].cell for name in names]
    storages = [state[name].storage for name in names]
    return [
        (cells.index(cell), storages.index(storage))
        for cell, storage in zip(cells, storages, strict=True)
    ]


Over = Literal["graph_module", "graph", "exported_program"]
"""The type of the argument of a pass."""


@frozen
class FxPass:
    """A pass, called by the type of its argument and result.

    >>> def nothing(module: torch.fx.GraphModule) -> None: pass
    >>> module = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> FxPass.of(nothing).on_module(module) is module
    True
    """

    run: Callable[..., Any]
    name: str
    over: Over
    takes_fuel: bool

    @classmethod
    def of(cls, run: Any, over: Over = "graph_module") -> FxPass:
        """Return the pass of a callable.

        Args:
            run: a function, a ``PassBase``, a ``PassManager``, or an object with ``apply`` over a graph.
            over: the type of its argument.

        Raises:
            FxPassError: it is not callable, or a class.
            ArgumentError: ``over`` is none of the three.
        """
        if over not in get_args(Over):
            raise ArgumentError(
                f"over={over!r}: pass one of {', '.join(map(repr, get_args(Over)))}"
            )
        if isinstance(run, cls):
            return run
        if isinstance(run, type):
            raise FxPassError(
                f"{run.__name__} is a class; pass an instance, {run.__name__}(), or one of its methods"
            )
        called = run if callable(run) else getattr(run, "apply", None)
        if not callable(called):
            raise FxPassError(
                f"a pass must be a function of a {over}, a PassBase or a PassManager, not a {type(run).__name__}"
            )
        return cls(called, name_of_pass(run), over, _takes_fuel(called))

    def on_module(self, module: torch.fx.GraphModule, **options: Any) -> torch.fx.GraphModule:
        """Return the result of the pass on a graph module, which it may modify.

        Raises:
            FxPassError: it returned something else.
        """
        return self._module(
            self.run(module.graph if self.over == "graph" else module, **options), module
        )

    def on_export(self, ep: Any, **options: Any) -> Any:
        """Return the result of the pass on an exported program, which it may modify.

        Raises:
            FxPassError: it returned something else.
        """
        result = self.run(ep, **options)
        if result is not None and not isinstance(result, torch.export.ExportedProgram):
            raise FxPassError(
                f"the pass {self.name} returned a {type(result).__name__}; it must return an ExportedProgram"
            )
        return ep if result is None else result

    def _module(self, result: Any, module: torch.fx.GraphModule) -> torch.fx.GraphModule:
        result = (
            getattr(result, "graph_module", result)
            if not isinstance(result, torch.nn.Module)
            else result
        )
        if (
            result is None
            or isinstance(result, bool | int)
            or (self.over == "graph" and result is module.graph)
        ):
            if self.over == "graph":
                module.recompile()
            return module  # edited in place; some passes return whether, or how often
        if isinstance(result, torch.fx.Graph):
            return torch.fx.GraphModule(module, result)
        if not isinstance(result, torch.fx.GraphModule):
            raise FxPassError(
                f"the pass {self.name} returned a {type(result).__name__}; it must return a GraphModule, a PassResult, a "
                "Graph, or None if it edits its argument"
            )
        return result


def name_of_pass(run: Any) -> str:
    """Return the name of a pass for messages.

    >>> name_of_pass(len), name_of_pass(torch.nn.ReLU())
    ('len', 'ReLU')
    """
    name = getattr(run, "__qualname__", None) or getattr(run, "__name__", None)
    return str(name).rpartition("<locals>.")[2] if name else type(run).__name__


def _takes_fuel(run: Callable[..., Any]) -> bool:
    try:
        found = signature(run).parameters.get("fuel")
    except (TypeError, ValueError):  # a builtin
        return False
    return found is not None and found.kind is not Parameter.POSITIONAL_ONLY


def snapshot(module: torch.fx.GraphModule) -> tuple[Any, ...]:
    """Return a snapshot of a graph module to detect changes: graphs, meta, tensors.

    Values of meta and tensors are compared by identity, tensors also by version.

    >>> module = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> before = snapshot(module)
    >>> module.graph.output_node().meta["note"] = 1
    >>> same_graph(before, snapshot(module)), same_graph(before, before)
    (False, True)
    """
    alive: list[Any] = [*paths_of(module).values()]  # keeps ids valid

    def same(value: Any) -> int:
        alive.append(value)
        return id(value)

    def seen(node: torch.fx.Node) -> tuple[Any, ...]:
        target = node.target if isinstance(node.target, str) else same(node.target)
        return (
            node.op,
            node.name,
            target,
            repr((node.args, node.kwargs)),
            {key: same(node.meta[key]) for key in node.meta},
        )

    inner = module.named_modules(remove_duplicate=False)
    graphs = [
        (path, list(map(seen, part.graph.nodes)))
        for path, part in inner
        if isinstance(part, torch.fx.GraphModule)
    ]
    tensors = [
        (name, id(tensor), times_written(tensor)) for name, tensor in paths_of(module).items()
    ]
    return (graphs, tensors), alive


def same_graph(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Return whether two snapshots are equal."""
    return bool(one[0] == other[0])


def to_fx(program: Program) -> torch.fx.GraphModule:
    """Convert a program to a plain ``torch.fx.GraphModule``, for passes over fx graphs.

    Args:
        program: a flat program; state inputs become reads, and outputs with new contents become writes at the end.

    Returns:
        A module of torch's own class.  It accepts the leaves of the user inputs and returns a tuple of the leaves of the
        outputs; its tensors are copies with the same ties.  Nodes keep their meta.

    Raises:
        UnsupportedProgram: the program calls bodies (``purefx.inline`` inlines them), or has preserved signatures.
        InvalidProgram: the program breaks invariants.

    >>> import torch, purefx as px
    >>> module = px.to_fx(px.import_ep(torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))))
    >>> type(module).__mro__[1].__name__, [node.op for node in module.graph.nodes]
    ('GraphModule', ['placeholder', 'get_attr', 'get_attr', 'call_function', 'output'])
    >>> module(torch.ones(1, 2))[0].shape
    torch.Size([1, 1])
    """
    _check_flat(program)
    lowered = lower(program)
    made = _plain(lowered, {})
    # A graph module copies only tensors that its graph reads, all as persistent buffers; add the rest of the state.
    saved, every = lowered.state_dict().keys(), cast("Any", {"remove_duplicate": False})
    tensors = (
        dict(made.named_buffers(**every))
        | dict(lowered.named_parameters(**every))
        | dict(lowered.named_buffers(**every))
    )
    for path, value in tensors.items():
        attach(made, path, value, persistent=path in saved)
    return made


def _check_flat(program: Program) -> None:
    a_program(program, "to_fx")
    called = [node.name for _, node in program.nodes() if type(node.do) is Call]
    if called:
        raise UnsupportedProgram(
            f"the program is not flat, {called[0]!a} calls a body: pass a flat program, px.to_fx(px.inline(program))"
        )
    if program.call_signatures:
        frame = next(iter(program.call_signatures))
        raise UnsupportedProgram(
            f"the module call {str(frame)!a} has a preserved signature, which a plain fx graph cannot represent; export the "
            "model without preserve_module_call_signature"
        )


def _plain(module: Any, made: dict[int, torch.fx.GraphModule]) -> torch.fx.GraphModule:
    # The module and the bodies of its operators in torch's class; ``made`` has those of a module that is used twice.
    found = made.get(id(module))
    if found is None:
        graph = copy_graph(module.graph)
        graph.set_codegen(CodeGen())
        found = made[id(module)] = torch.fx.GraphModule(module, graph, class_name="GraphModule")
        for path in {
            str(node.target) for node in graph.nodes if node.op in ("get_attr", "call_module")
        }:
            inner = attribute_of(module, path)
            if isinstance(inner, Lowered):
                setattr(found, path, _plain(inner, made))
    return found
