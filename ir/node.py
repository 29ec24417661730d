"""``Node``: one step of a graph, and the three things that a step can do.

One idea: a node is a name, what it does (``Op``, ``Call`` or ``Get``), its arguments and the stack of module calls
that it belongs to *relative to its graph*, so that a body shared by many instances reads the same in all of them.
Meta is carried and never compared.  Nothing here knows the graph that a node is in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, final

from attrs import field, frozen

from .arguments import Arg, Body, Ref, instead_by, map_refs, refs_in, same_arg, shown, strict_hash
from .effects.declared import PURE, Effects
from .meta import EMPTY_META, Meta
from .printing import text_of

__all__ = ["Call", "Do", "Frame", "Get", "Kwargs", "Node", "Op", "Stack", "common_prefix"]


@frozen(cache_hash=True)
class Frame:
    """One call of one module: its path and the number of the call, counted from 0.

    The path is relative to the module of the graph that the frame is in; one that begins with ``/`` is counted from the root,
    for a module that is not below that one (see ``paths.py``).  ``part`` is above 0 for the later pieces of a call whose nodes
    could not be gathered in one place.

    >>> str(Frame("layers.0", 2))
    'layers.0@2'
    """

    path: str
    call: int = 0
    part: int = 0

    def __str__(self) -> str:
        call = f"@{self.call}" if self.call else ""
        part = f"#{self.part}" if self.part else ""
        return f"{self.path}{call}{part}"


Stack = tuple[Frame, ...]
"""The module calls that a node is inside, outermost first, below the graph that holds it."""


def common_prefix(stacks: Iterable[Stack]) -> Stack:
    """Return the longest stack that all the given ones begin with; () for none.

    >>> a, b = Frame("a"), Frame("a.b")
    >>> common_prefix([(a, b), (a,)])
    (Frame(path='a', call=0, part=0),)
    """
    found: Stack | None = None
    for stack in stacks:
        if found is None:
            found = stack
            continue
        length = 0
        for mine, other in zip(found, stack, strict=False):
            if mine is not other and mine != other:
                break
            length += 1
        found = found[:length]
    return found or ()


Kwargs = tuple[tuple[str, Arg], ...]
"""Keyword arguments, in the order in which they were written."""


@final
@frozen
class Op:
    """Calls an operator or a plain function.

    Two ops are equal when name and effects agree; ``target`` is the callable that runs.

    >>> Op("toy.neg", target=lambda x: -x) == Op("toy.neg")
    True
    """

    name: str
    effects: Effects = field(default=PURE, repr=False)
    target: Callable[..., Any] | None = field(default=None, eq=False, repr=False)


@final
@frozen
class Call:
    """Calls a body: ``instance`` says which module call it is, ``graph`` which body runs.

    The path of the instance is relative to the module whose body holds the node.

    >>> str(Call(Frame("mlp", 1), "layers.0.mlp").instance)
    'mlp@1'
    """

    instance: Frame
    graph: str


@final
@frozen
class Get:
    """Reads the state named ``slot``, relative to the module whose body holds the node.

    >>> Get("weight").slot
    'weight'
    """

    slot: str


Do = Op | Call | Get


@frozen(eq=False)
class Node:
    """One step of a graph.

    >>> from purefx.ir import Node, Op, Ref
    >>> a = Node("y", Op("toy.add"), (Ref("x"), 1))
    >>> a == Node("y", Op("toy.add"), (Ref("x"), 1)), a == Node("y", Op("toy.add"), (Ref("x"), True))
    (True, False)
    """

    name: str
    do: Do
    args: tuple[Arg, ...] = field(default=(), repr=shown)
    kwargs: Kwargs = field(default=(), repr=shown)
    stack: Stack = ()
    meta: Meta = field(default=EMPTY_META, repr=False)

    def refs(self) -> list[str]:
        """Return the names of the values that it uses, in order, repeats kept."""
        return refs_in(self.args, self.kwargs)

    def with_refs(self, rename: Callable[[Ref | Body], Arg]) -> Node:
        """Return a copy that uses other values; the same object where none differs.

        Args:
            rename: gives what stands in place of a reference; may return it unchanged.

        >>> Node("y", Op("toy.neg"), (Ref("x"),)).with_refs(lambda ref: Ref("z")).args
        (Ref(name='z'),)
        """
        args = map_refs(self.args, rename)
        kwargs = map_refs(self.kwargs, rename) if self.kwargs else ()
        if args is self.args and kwargs is self.kwargs:
            return self
        return Node(self.name, self.do, args, kwargs, self.stack, self.meta)

    def using(self, known: Mapping[str, Arg]) -> Node:
        """Return a copy that uses what stands for some values, by name; the same object where it uses none of them.

        >>> Node("y", Op("toy.neg"), (Ref("x"),)).using({"x": 7}).args
        (7,)
        """
        return self if known.keys().isdisjoint(self.refs()) else self.with_refs(instead_by(known))

    def __str__(self) -> str:
        return text_of(self)

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not Node:
            return NotImplemented
        return (
            self.name == other.name
            and (self.do is other.do or self.do == other.do)
            and self.stack == other.stack
            and same_arg(self.args, other.args)
            and same_arg(self.kwargs, other.kwargs)
        )

    def __hash__(self) -> int:
        return hash((self.name, self.do, self.stack, strict_hash(self.args), strict_hash(self.kwargs)))
