"""Parts: the bodies that a split program is made of.

One idea: a part is a module of its own in the root, told from others by the reserved type ``purefx.Part`` in
``program.modules``, so it is printed, parsed and verified like everything else.  What was ``layers.0.weight`` is
``stage0.layers.0.weight`` in the part ``stage0``: inside a part all names are the original ones.  Nothing here splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TypeVar

from attrs import field, frozen

from .callers import module_calls
from .node import Call, Frame, Node
from .program import Module, Program

__all__ = ["PART", "Part", "Whereabouts", "is_part", "original", "part_names", "parts", "where_went"]

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
    """The tag that it is named by; it is the path of its module."""
    graph: str
    """The id of its body; equal parts may share one after ``deduplicate``."""
    node: Node = field(repr=False)
    """The call in the root."""


@frozen
class Whereabouts:
    """Where the state and the module calls of the original program went.

    >>> Whereabouts({"w": ("a.w",)}, {}).state["w"]
    ('a.w',)
    """

    state: Mapping[str, tuple[str, ...]]
    """For each original name of state its names now: one for each part that has it."""
    calls: Mapping[Frame, tuple[Frame, ...]]
    """For each original module call the calls that it is now: one for each part that runs some of it."""


def is_part(module: Module) -> bool:
    """Say whether an entry of ``program.modules`` is a part.

    >>> is_part(Module("stage0", PART)), is_part(Module("stage0", "torch.nn.Linear"))
    (True, False)
    """
    return module.type_name == PART


def part_names(program: Program) -> tuple[str, ...]:
    """Return the names of the parts in the order in which they were asked for; () for a program that is not split.

    Args:
        program: a program at any stage.

    >>> part_names(Program.of({}, modules=(Module("", "Model"), Module("a", PART), Module("a.lin", "Linear"))))
    ('a',)
    """
    return tuple([module.path for module in program.modules if is_part(module)])


def parts(program: Program) -> tuple[Part, ...]:
    """Return the parts of a split program in the order in which they run; () for one that is not split.

    Args:
        program: a program at any stage; while its calls are inlined it has no bodies to list.

    >>> import purefx as px
    >>> neg = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (neg,), (px.Ref("y"),))})
    >>> [part.name for part in px.parts(px.split_by_tags(program, ("a", "b"), tag_of={"y": "b"}))]
    ['a', 'b']
    """
    names = set(part_names(program))
    if not names:
        return ()
    calls = [(node, node.do) for node in program.main.callers if type(node.do) is Call]
    return tuple([Part(do.instance.path, do.graph, node) for node, do in calls if do.instance.path in names])


def original(path: str, names: Iterable[str]) -> str:
    """Return what a path of a split program was before: the path of a module, or the name of state.

    Args:
        path: counted from the root.
        names: of the parts; a set, where it is asked often.

    >>> original("stage0.layers.0", {"stage0"}), original("stage0", {"stage0"}), original("layers.0", ())
    ('layers.0', '', 'layers.0')
    """
    head, _, rest = path.partition(".")
    return rest if head in names else path


def where_went(program: Program) -> Whereabouts:
    """Return where state and module calls of the original program are now.

    Args:
        program: a split program; of one that is not split, everything is where it was.

    >>> import purefx as px
    >>> neg = px.Node("y", px.Op("toy.neg"), (px.Ref("x"),), stack=(px.Frame("act"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (neg,), (px.Ref("y"),))})
    >>> went = px.where_went(px.split_by_tags(program, ("a",), tag_of={"act": "a"}))
    >>> [str(frame) for frame in went.calls[px.Frame("act")]]
    ['a.act']
    """
    names = frozenset(part_names(program))
    state: dict[str, dict[str, None]] = {}
    for name in program.state:
        state.setdefault(original(name, names), {})[name] = None
    calls: dict[Frame, dict[Frame, None]] = {}
    for frame in module_calls(program):
        was = Frame(original(frame.path, names), frame.call)
        if was.path:
            calls.setdefault(was, {})[Frame(frame.path, frame.call)] = None
    return Whereabouts(_frozen(state), _frozen(calls))


def _frozen(found: dict[K, dict[V, None]]) -> Mapping[K, tuple[V, ...]]:
    return MappingProxyType({key: tuple(values) for key, values in found.items()})
