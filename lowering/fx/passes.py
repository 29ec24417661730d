"""``as_fx_pass`` and ``from_fx_pass``: our transformations in pass managers of torch, passes of others in our pipelines.

A pass that comes from outside may edit what it is given and knows nothing of signatures, ties and calling conventions; it is
given a copy, and what it returns is taken back as the body of the same program.  Whether it is right is a question for
``purefx.laws.check_fx_pass``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
from attrs import evolve
from torch.fx.passes.infra.pass_base import PassResult

from ...ir.errors import FxPassError
from ...ir.importing import import_ep, import_fx
from ...ir.program import Program
from ...ir.signature import UserInput
from ...ir.state import Slot, State, same_value
from ...ir.taking import a_result
from ...ir.tensors import TensorIds
from ...ir.verify import check
from ...transforms import Fuel, RuleSet, Transformation, functionalize, inline, lift_state, transformation
from ..executable import executable
from ..lower import lower
from ..to_ep import make_ep
from .applied import FxPass, Over, same_graph, seen_of
from .plain import to_fx

__all__ = ["as_fx_pass", "exported", "from_fx_pass", "paths_of", "taken_back"]


def as_fx_pass(transformation: Callable[[Program], Program], *, over: Over = "graph_module") -> Callable[[Any], Any]:
    """Return a transformation as a pass over fx graphs, for the pass managers and hooks of torch.

    Args:
        transformation: a function from programs to programs: a ``Transformation``, a rule, a set of rules.
        over: ``"graph_module"`` gives a function from a ``GraphModule`` to a ``PassResult``, as ``PassManager`` takes it; the
            module is left as it is.  ``"graph"`` gives a function that edits a graph in place, as hooks of compilers take it.
            ``"exported_program"`` gives a function from exported programs to exported programs.

    Returns:
        A function with the name of the transformation.

    Raises:
        ValueError: ``over`` is none of the three.
        UnsupportedProgram: when called: the graph has something that cannot be represented faithfully.

    >>> import torch, purefx as px
    >>> from torch.fx.passes.infra.pass_manager import PassManager
    >>> tanh = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x))
    >>> manager = PassManager(passes=[px.as_fx_pass(tanh)])
    >>> module = torch.export.export(torch.nn.ReLU(), (torch.ones(2),)).module()
    >>> result = manager(module)
    >>> result.modified, result.graph_module(torch.ones(2))
    (True, tensor([0.7616, 0.7616]))
    """
    chosen = FxPass.of(transformation, over)  # refuses what is none

    def on_module(module: torch.fx.GraphModule) -> PassResult:
        program = check(import_fx(module))
        result = a_result(transformation(program), chosen.name)
        if result is program:
            return PassResult(module, modified=False)
        return PassResult(lower(result, state="share"), modified=True)

    def on_graph(graph: torch.fx.Graph) -> None:
        module = graph.owning_module or torch.fx.GraphModule({}, graph)
        program = check(import_fx(module))
        result = a_result(transformation(program), chosen.name)
        if result is not program:
            _put_into(graph, to_fx(inline(result)))

    def on_exported(ep: Any) -> Any:
        program = check(import_ep(ep))
        result = a_result(transformation(program), chosen.name)
        return ep if result is program else exported(result)

    made: Any = {"graph_module": on_module, "graph": on_graph, "exported_program": on_exported}[over]
    made.__name__ = made.__qualname__ = chosen.name
    return made


def _put_into(graph: torch.fx.Graph, new: torch.fx.GraphModule) -> None:
    # The placeholders stay: whoever holds the graph knows them.
    known: dict[torch.fx.Node, torch.fx.Node] = {}
    formals = [node for node in graph.nodes if node.op == "placeholder"]
    for node in reversed([node for node in graph.nodes if node.op != "placeholder"]):
        graph.erase_node(node)
    theirs = iter(formals)
    for node in new.graph.nodes:
        if node.op == "placeholder":
            known[node] = next(theirs)
            continue
        if node.op == "get_attr" and graph.owning_module is not None:
            _take_over(graph.owning_module, new, str(node.target))
        known[node] = graph.node_copy(node, known.__getitem__)


def _take_over(module: torch.nn.Module, new: torch.nn.Module, path: str) -> None:
    # What the graph reads by a path that the module has not.
    *outer, name = path.split(".")
    source: Any = new
    for step in outer:
        source = getattr(source, step)
        if not hasattr(module, step):
            setattr(module, step, torch.nn.Module())
        module = getattr(module, step)
    if not hasattr(module, name):
        setattr(module, name, getattr(source, name))


def exported(program: Program) -> Any:
    """Return a program as an exported program, as passes over those take it."""
    return make_ep(functionalize(lift_state(inline(program))))


def from_fx_pass(a_pass: Any, *, over: Over = "graph_module", name: str | None = None) -> Transformation:
    """Return a pass over fx graphs as a transformation, for pipelines of purefx.

    Args:
        a_pass: a function, a ``PassBase`` or a ``PassManager``; it may edit what it is given, return a module or a
            ``PassResult``.  One that takes a keyword ``fuel`` gets a ``purefx.Fuel`` and asks ``fuel.burn(...)`` before each
            rewrite, so that ``purefx.bisect`` finds the wrong one.  One that does not counts as one rewrite.
        over: what it takes: ``"graph_module"``, ``"graph"`` or ``"exported_program"``.
        name: of the transformation; by default that of the pass.

    Returns:
        A transformation of flat programs, verified after every run.  The program that it is given stays as it is: the pass gets
        a copy.  Inputs, outputs, modules and constraints stay; state that the pass did not change is the program's own.

    Raises:
        FxPassError: it is no pass; when called: it gave no graph module, or one with other inputs or outputs.
        InvalidProgram: when called: what the pass made breaks invariants.
        UnsupportedProgram: when called: what the pass made cannot be represented faithfully.

    >>> import torch, purefx as px
    >>> from torch.fx.passes.tools_common import legalize_graph
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> ordered = px.from_fx_pass(legalize_graph)
    >>> ordered.name, ordered(program) is program
    ('legalize_graph', True)
    """
    if isinstance(a_pass, Transformation | RuleSet):
        raise FxPassError(f"{a_pass.name} takes programs and no fx graphs: give transform {a_pass.name} itself")
    called = FxPass.of(a_pass, over)

    def apply(program: Program, **options: Any) -> Program:
        if called.over == "exported_program":
            return check(import_ep(called.on_export(exported(program), **options)))
        module = to_fx(program)
        before, tensors = seen_of(module), paths_of(module)
        result = called.on_module(module, **options)
        if result is module and same_graph(before, seen_of(module)):
            return program
        return taken_back(program, result, called.name, given=tensors)

    def with_fuel(program: Program, *, fuel: Fuel) -> Program:
        return apply(program, fuel=fuel)

    def as_one(program: Program, *, fuel: Fuel) -> Program:
        result = apply(program)
        return result if result is program or fuel.burn("run", called.name) else program

    chosen = with_fuel if called.takes_fuel else as_one
    chosen.__name__ = chosen.__qualname__ = name or called.name
    chosen.__doc__ = getattr(a_pass, "__doc__", None)
    return transformation(requires={"flat"})(chosen)


def paths_of(module: torch.nn.Module) -> Mapping[str, Any]:
    """Return the tensors of a module by path, to know them again wherever a pass puts them."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def taken_back(
    program: Program, module: torch.fx.GraphModule, name: str, *, given: Mapping[str, Any] = MappingProxyType({})
) -> Program:
    """Return a program with the graph that a pass made of it.

    Args:
        program: what the pass was given, flat.
        module: what the pass made of ``to_fx(program)``.
        name: of the pass, for messages.
        given: the tensors of that module, by path: those that the pass has put elsewhere are still the same state.

    Raises:
        FxPassError: inputs or outputs are others.

    >>> import torch, purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> [node.name for node in taken_back(program, px.to_fx(program), "nothing").main.nodes]
    ['relu']
    """
    made, was = import_fx(module), executable(program)
    _check_interface(made, was, name)
    known = {one.path for one in program.modules}
    modules = (*program.modules, *[one for one in made.modules if one.path not in known])
    result = evolve(
        made,
        state=_state(program.state, made.state, given),
        signature=was.signature,
        constraints=program.constraints,
        modules=modules,
        facts=(program.facts - {"state as inputs", "flat"}) | made.facts,
        trail=program.trail,
    )
    return check(result)


def _check_interface(made: Program, was: Program, name: str) -> None:
    takes, expected = ([formal.name for formal, spec in one.inputs if type(spec) is UserInput] for one in (made, was))
    if len(takes) != len(expected):
        raise FxPassError(
            f"the pass {name} gave a graph with {len(takes)} inputs ({', '.join(takes)}), where the program takes "
            f"{len(expected)} ({', '.join(expected)}); a transformation keeps the inputs"
        )
    gives, wanted = len(made.main.output), len(was.main.output)
    if gives != wanted:
        raise FxPassError(f"the pass {name} gave a graph with {gives} outputs, where the program gives {wanted}")


def _state(before: State, after: State, given: Mapping[str, Any]) -> State:
    """Return the state after a pass: what it did not change is the tensor that was there, in the order that was there."""
    paths = {id(tensor): path for path, tensor in reversed([*given.items()]) if path in before}
    was = {name: name if name in before else paths.get(id(slot.value), name) for name, slot in after.pairs}
    values = _unchanged(before, after, was)
    ids, slots = TensorIds(), dict[str, Slot]()
    for name in (*before, *[name for name in after if name not in before]):
        slot = after[name] if name in after else before[name]
        known = before.slots.get(name, slot)  # fx keeps constants as buffers
        slots[name] = ids.slot(values.get(name, slot.value), known.kind, persistent=known.persistent)
    return State().with_slots(slots)


def _unchanged(before: State, after: State, was: Mapping[str, str]) -> dict[str, Any]:
    # By memory: tensors that overlap are taken together, or their overlap would be lost.
    groups: dict[int, list[str]] = {}
    for name, slot in after.pairs:
        groups.setdefault(slot.storage, []).append(name)
    found: dict[str, Any] = {}
    for names in groups.values():
        same = all(was[name] in before and same_value(before[was[name]].value, after[name].value) for name in names)
        if same and _ties(before, [was[name] for name in names]) == _ties(after, names):
            found.update({name: before[was[name]].value for name in names})
    return found


def _ties(state: State, names: list[str]) -> list[tuple[int, int]]:
    cells = [state[name].cell for name in names]
    storages = [state[name].storage for name in names]
    return [(cells.index(cell), storages.index(storage)) for cell, storage in zip(cells, storages, strict=True)]
