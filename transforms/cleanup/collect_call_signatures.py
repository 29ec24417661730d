"""``collect_call_signatures``: the tracepoints around a module call become its preserved call signature.

A tracepoint is the identity, so it is replaced by a boundary node with the same operands.  The two tracepoints of a call also
delimit its nodes, for tracers that write no stacks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...ir.arguments import Arg, Ref, map_refs
from ...ir.calls.parts import with_listed
from ...ir.errors import NamingError, UnsupportedProgram
from ...ir.graph import Frame, Graph, Node, Op, place_of
from ...ir.meta import Meta
from ...ir.names import is_below, word_of
from ...ir.origins import made_of, standing_in
from ...ir.own_operators import GIVES, TAKES
from ...ir.persistent import pmap
from ...ir.program import CallSignature, Program
from ...ir.torch_private import pytree
from ..transformation import transformation

__all__ = ["collect_call_signatures"]

TRACEPOINT = "higher_order._export_tracepoint"

BOUNDARIES = {"module_call_inputs": TAKES, "module_call_outputs": GIVES}


@transformation(
    proven=True,
    requires={"flat"},
    laws=["no tracepoint is left", "each traced call has a signature, and its nodes are in it"],
)
def collect_call_signatures(program: Program, *, specs: Mapping[str, Any] | None = None) -> Program:
    """Turn tracepoints into preserved call signatures.

    Before::

        t = higher_order._export_tracepoint(x, kind="module_call_inputs", path="sub")
        a = operator.getitem(t, 0)
        y = aten.relu.default(a)
        u = higher_order._export_tracepoint(y, kind="module_call_outputs", path="sub")
        b = operator.getitem(u, 0)
        z = aten.neg.default(b)

    After::

        sub_takes = purefx.takes(x)     in sub
        y = aten.relu.default(x)        in sub
        sub_gives = purefx.gives(y)     in sub
        z = aten.neg.default(y)
        signature sub: in_spec ((*,), {}), out_spec *

    ``torch.export`` puts such nodes around the modules whose signature it is asked to preserve; so does ``make_fx`` under its
    hooks.  Nodes between the two without a stack are put into the call; calls of a module are numbered in their order where
    stacks do not say.

    Args:
        program: a flat program.
        specs: the pytrees of arguments and result of each module, by path: a dict with ``in_spec`` and ``out_spec``, as torch's
            hooks fill it, or a ``CallSignature``.  Without them a call takes its leaves by position, and gives one value, or a
            tuple of several.

    Returns:
        The program with the signatures; the same object if it has no tracepoint.

    Raises:
        UnsupportedProgram: a tracepoint has no partner, or its result is used whole.
        NamingError: a pytree does not have the leaves of the call, or is given for a module without tracepoints.
        PipelineError: the program calls modules.

    >>> from purefx.ir import Graph, Program
    >>> program = Program.of({"": Graph((), (), ())})
    >>> collect_call_signatures(program) is program
    True
    """
    if not any(map(is_tracepoint, program.main.nodes)):
        if specs:
            raise NamingError(f"the program has no tracepoint, and specs= refers to {', '.join(map(repr, specs))}")
        return program
    return _Collecting(program, specs or {}).program()


def is_tracepoint(node: Node) -> bool:
    """Return whether a node marks the arguments or the results of a module call.

    >>> is_tracepoint(Node("t", Op("toy.neg")))
    False
    """
    return type(node.do) is Op and node.do.name == TRACEPOINT


class _Collecting:
    """One walk over the root, with the calls that are open."""

    def __init__(self, program: Program, specs: Mapping[str, Any]) -> None:
        self.source = program
        self.specs = specs
        graph = program.main
        self.names = graph.names()
        self.leaves: dict[str, tuple[Arg, ...]] = {}
        """What each tracepoint was given."""
        self.known: dict[str, Arg] = {}
        self.gone: dict[str, list[Meta]] = {}
        """What stands for a projection of a tracepoint."""
        self.open: list[tuple[Frame, int]] = []
        """The calls around, each with the count of its arguments."""
        self.counts: dict[str, int] = {}
        self.signatures: dict[Frame, CallSignature] = {}

    def program(self) -> Program:
        """Return the program without tracepoints."""
        graph = self.source.main
        nodes = [made for node in graph.nodes if (made := self._node(node)) is not None]
        if self.open:
            raise UnsupportedProgram(
                f"the call of {self.open[-1][0].path!r} has a tracepoint for its arguments, and none for its result"
            )
        unused = [path for path in self.specs if path not in self.counts]
        if unused:
            raise NamingError(
                f"specs= refers to {unused[0]!r}, and no tracepoint does; there are {', '.join(map(repr, self.counts))}"
            )
        root = Graph(standing_in(graph.inputs, self.gone), standing_in(nodes, self.gone), map_refs(graph.output, self._use))
        signatures = pmap({**self.source.call_signatures, **self.signatures})
        return self.source.with_main(root, call_signatures=signatures, modules=with_listed(self.source.modules, self.counts))

    def _use(self, ref: Any) -> Arg:
        if type(ref) is not Ref:
            return ref
        if ref.name in self.leaves:
            raise UnsupportedProgram(f"the result of the tracepoint {ref.name} is used whole; use operator.getitem of it")
        return self.known.get(ref.name, ref)

    def _node(self, node: Node) -> Node | None:
        if is_tracepoint(node):
            return self._tracepoint(node)
        whole, index = node.projection or ("", 0)
        leaves = self.leaves.get(whole, ())
        if -len(leaves) <= index < len(leaves):
            leaf = self.known[node.name] = leaves[index]
            if type(leaf) is Ref:
                self.gone.setdefault(leaf.name, []).append(node.meta)
            return None
        made = node.with_refs(self._use)
        stack = made.stack
        for frame, _ in self.open:
            stack = stack if frame in stack else _with_call(stack, frame)
        return made if stack is made.stack else Node(made.name, made.do, made.args, made.kwargs, stack, made.meta)

    def _tracepoint(self, node: Node) -> Node:
        told = dict(node.kwargs)
        path, kind = told.get("path"), told.get("kind")
        if type(path) is not str or not path or kind not in BOUNDARIES:
            raise UnsupportedProgram(
                f"{place_of(node)}: a tracepoint has a path and a kind, module_call_inputs or module_call_outputs"
            )
        leaves = self.leaves[node.name] = tuple([map_refs(arg, self._use) for arg in node.args])
        frame = self._entered(node, path, len(leaves)) if BOUNDARIES[kind] is TAKES else self._left(node, path, leaves)
        stack = node.stack
        for outer in (*[outer for outer, _ in self.open], frame):
            stack = stack if outer in stack else _with_call(stack, outer)
        word = BOUNDARIES[kind].name.rpartition(".")[2]
        name, inside = self.names.fresh(word_of(f"{path}.{word}")), stack[: stack.index(frame) + 1]
        return Node(name, BOUNDARIES[kind], leaves, (), inside, made_of([node.meta]))

    def _entered(self, node: Node, path: str, count: int) -> Frame:
        number = self.counts.get(path, 0)
        self.counts[path] = number + 1
        frame = next((frame for frame in node.stack if frame.path == path), Frame(path, number))
        self.open.append((frame, count))
        return frame

    def _left(self, node: Node, path: str, leaves: tuple[Arg, ...]) -> Frame:
        if not self.open or self.open[-1][0].path != path:
            inside = f"the call of {self.open[-1][0].path!r}" if self.open else "no call"
            raise UnsupportedProgram(f"{place_of(node)}: it ends the call of {path!r}, and stands in {inside}")
        frame, count = self.open.pop()
        self.signatures[frame] = self._signature(path, count, len(leaves))
        return frame

    def _signature(self, path: str, takes: int, gives: int) -> CallSignature:
        given = self.specs.get(path)
        if given is None:
            one: Any = 0 if gives == 1 else (0,) * gives
            return CallSignature(pytree.tree_structure(((0,) * takes, {})), pytree.tree_structure(one))
        made = given if isinstance(given, CallSignature) else None
        if made is None and isinstance(given, Mapping) and {"in_spec", "out_spec"} <= set(given):
            made = CallSignature(given["in_spec"], given["out_spec"])
        if made is None:
            raise NamingError(
                f"specs[{path!r}] is a dict with in_spec and out_spec, or a CallSignature, not {type(given).__name__}"
            )
        for what, spec, count in (("takes", made.in_spec, takes), ("gives", made.out_spec, gives)):
            if getattr(spec, "num_leaves", None) != count:
                raise NamingError(
                    f"the call of {path!r} {what} {count} values, and its pytree has {getattr(spec, 'num_leaves', 'no')} leaves"
                )
        return made


def _with_call(stack: tuple[Frame, ...], frame: Frame) -> tuple[Frame, ...]:
    # Around the calls of what is below the module, inside the others.
    depth = next((depth for depth, inner in enumerate(stack) if is_below(inner.path, frame.path)), len(stack))
    return (*stack[:depth], frame, *stack[depth:])
