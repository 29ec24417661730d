"""Parts of a split program: their bodies, their order, and the values that they pass.

Read only: splitting and joining are transformations.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar

from attrs import field, frozen

from ..arguments import Arg
from ..errors import UnsupportedProgram
from ..graph import Call, Frame, Node
from ..names import way_to
from ..program import Module, Program
from ..validation import a_program
from .call_graph import module_calls

K = TypeVar("K")
V = TypeVar("V")

PART = "purefx.Part"
"""The type of the module that is a part."""


@frozen
class Part:
    """One part of a split program.

    >>> Part("stage0", "stage0", Node("y", Call(Frame("stage0"), "stage0"))).node.name
    'y'
    """

    name: str
    """Its tag, which is the path of its module."""
    graph: str
    """The id of its body; equal parts may share one after ``deduplicate``."""
    node: Node = field(repr=False)
    """The call in the root."""


@frozen
class SplitProvenance:
    """The provenance map of a split program: current names of the original state and module calls.

    >>> SplitProvenance({"w": ("a.w",)}, {}).state["w"]
    ('a.w',)
    """

    state: Mapping[str, tuple[str, ...]]
    """For each original name of state, its current names, one for each part that has it."""
    calls: Mapping[Frame, tuple[Frame, ...]]
    """For each original module call, its current calls, one for each part that runs some of it."""


def is_part(module: Module) -> bool:
    """Return whether an entry of ``program.modules`` is a part.

    >>> is_part(Module("stage0", PART)), is_part(Module("stage0", "torch.nn.Linear"))
    (True, False)
    """
    return module.type_name == PART


def part_names(program: Program) -> frozenset[str]:
    """Return the names of the parts; empty for a program that is not split.

    Args:
        program: a program at any stage.

    >>> part_names(Program.of({}, modules=(Module("", "Model"), Module("a", PART), Module("a.lin", "Linear"))))
    frozenset({'a'})
    """
    return frozenset([module.path for module in program.modules if is_part(module)])


def parts(program: Program) -> tuple[Part, ...]:
    """Return the parts of a split program in the order in which they run; () for one that is not split.

    Args:
        program: a program at any stage; if its calls are inlined, it has no bodies to list.

    >>> import purefx as px
    >>> neg = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (neg,), (px.Ref("y"),))})
    >>> [part.name for part in px.parts(px.split_by_tags(program, ("a", "b"), tag_of={"y": "b"}))]
    ['a', 'b']
    """
    names = part_names(a_program(program, "parts"))
    if not names:
        return ()
    calls = [(node, node.do) for node in program.main.callers if type(node.do) is Call]
    return tuple(
        [Part(do.instance.path, do.graph, node) for node, do in calls if do.instance.path in names]
    )


def original(path: str, names: Iterable[str]) -> str:
    """Return the original of a path in a split program: the path of a module, or the name of state.

    Args:
        path: from the root.
        names: of the parts; pass a set for many calls.

    >>> original("stage0.layers.0", {"stage0"}), original("stage0", {"stage0"}), original("layers.0", ())
    ('layers.0', '', 'layers.0')
    """
    head, _, rest = path.partition(".")
    return rest if head in names else path


def split_provenance(program: Program) -> SplitProvenance:
    """Return the provenance map of a split, from original names of state and module calls to current ones.

    Args:
        program: a split program; for one that is not split, every name maps to itself.

    >>> import purefx as px
    >>> neg = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("act"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (neg,), (px.Ref("y"),))})
    >>> went = px.split_provenance(px.split_by_tags(program, ("a",), tag_of={"act": "a"}))
    >>> [str(frame) for frame in went.calls[px.Frame("act")]]
    ['a.act']
    """
    names = part_names(a_program(program, "split_provenance"))
    state: dict[str, dict[str, None]] = {}
    for name in program.state:
        state.setdefault(original(name, names), {})[name] = None
    calls: dict[Frame, dict[Frame, None]] = {}
    for frame in module_calls(program):
        was = Frame(original(frame.path, names), frame.call)
        if was.path:
            calls.setdefault(was, {})[Frame(frame.path, frame.call)] = None
    return SplitProvenance(_frozen(state), _frozen(calls))


def _frozen(found: dict[K, dict[V, None]]) -> Mapping[K, tuple[V, ...]]:
    return MappingProxyType({key: tuple(values) for key, values in found.items()})


def with_listed(
    modules: tuple[Module, ...],
    paths: Iterable[str],
    types: Mapping[str, str | None] = MappingProxyType({}),
) -> tuple[Module, ...]:
    """Return the modules of a program with others added, each after its parents; the same object if all are listed.

    Args:
        modules: the listed ones; if all of them are parts, nothing is added.
        paths: of the required modules.
        types: class names of modules, by path, where known.

    >>> [module.path for module in with_listed((Module(""), Module("a")), ["b.c", "a"])]
    ['', 'a', 'b', 'b.c']
    >>> with_listed((), ["a"])
    ()
    """
    if all(is_part(module) for module in modules):
        return modules
    found = {module.path: module for module in modules}
    for path in paths:
        for above in way_to(path) if path not in found else ():
            found.setdefault(above, Module(above, types.get(above) or None))
    return tuple(found.values()) if len(found) > len(modules) else modules


def first_paths(modules: Sequence[Module]) -> dict[str, str]:
    """Return the first path of each module that has several, by each of them.

    In a program that was split, only paths of one part are paths of one object.

    >>> first_paths([Module("a", cell=0), Module("b"), Module("c", cell=0)])
    {'a': 'a', 'c': 'a'}
    """
    paths: dict[tuple[str, int], list[str]] = {}
    parts = {module.path for module in modules if is_part(module)}
    for module in modules:
        if module.cell is not None:
            name = module.path.partition(".")[0]
            paths.setdefault((name if name in parts else "", module.cell), []).append(module.path)
    return {path: found[0] for found in paths.values() if len(found) > 1 for path in found}


@frozen
class PartCall:
    """One part of a split program: the call in the root, and its results.

    >>> from purefx.ir import Frame, Ref
    >>> PartCall(Node("y", Call(Frame("stage0"), "stage0"), (Ref("x"),)), "stage0", "stage0", (Ref("n"),), ("y",)).given
    ('y',)
    """

    node: Node
    path: str
    """The path of the part in the module tree: its tag."""
    graph: str
    outputs: tuple[Arg, ...]
    """The results of its body, in order, with the body's names."""
    given: tuple[str | None, ...]
    """For each of these, its name in the root; None if the root does not select it."""


@frozen
class Chain:
    """The parts of a program in the order in which they run.

    >>> Chain((), {}).parts
    ()
    """

    parts: tuple[PartCall, ...]
    makers: Mapping[str, tuple[int, int]]
    """For each value of the root that a part computes: the numbers of the part and of the result."""

    def value(self, name: str) -> str:
        """Return the first name of a value in the root: one result may be selected twice."""
        at = self.makers.get(name)
        return name if at is None else self.parts[at[0]].given[at[1]] or name


def chain_of(program: Program, *, asked_by: str) -> Chain:
    """Return the parts of a split program.

    Args:
        program: its root only calls the parts and selects their results.
        asked_by: the name of the function, for the message.

    Raises:
        UnsupportedProgram: the root has other nodes, so the program is not split.

    >>> from purefx.ir import Frame, Graph, Input, Module, Ref
    >>> from purefx.ir.calls.parts import PART
    >>> body = Graph((Input("a"),), (), Ref("a"))
    >>> main = Graph((Input("x"),), (Node("y", Call(Frame("stage0"), "b"), (Ref("x"),)),), (Ref("y"),))
    >>> program = Program.of({"": main, "b": body}, modules=(Module("stage0", PART),))
    >>> chain_of(program, asked_by="this").makers
    {'y': (0, 0)}
    """
    parts = part_names(program)
    numbers: dict[str, int] = {}
    calls: list[tuple[Node, Call, tuple[Arg, ...], list[str | None]]] = []
    makers: dict[str, tuple[int, int]] = {}
    for node in program.main.nodes:
        if type(node.do) is Call and node.do.instance.path in parts:
            several, outputs = (
                type(program.graphs[node.do.graph].output) is tuple,
                program.graphs[node.do.graph].results,
            )
            numbers[node.name] = len(calls)
            if not several:
                makers[node.name] = len(calls), 0
            calls.append(
                (node, node.do, outputs, [None] * len(outputs) if several else [node.name])
            )
            continue
        whole, index = node.item
        if whole not in numbers:
            raise UnsupportedProgram(
                f"{asked_by} takes a split program, whose root only calls its parts, but node {node.name} of the root is "
                "outside of all parts; begin with split_by_tags, split_by_module or split_balanced"
            )
        given = calls[numbers[whole]][3]
        given[index] = given[index] or node.name
        makers[node.name] = numbers[whole], index
    found = [
        PartCall(node, do.instance.path, do.graph, outputs, tuple(given))
        for node, do, outputs, given in calls
    ]
    return Chain(tuple(found), makers)
