"""The exporter's records of module calls: preserved call signatures become boundary nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch.export.graph_signature import ConstantArgument

from ..arguments import Arg, Ref
from ..errors import UnsupportedProgram
from ..graph import Frame, Graph, Node, Op, Stack
from ..names import word_of
from ..own_operators import GIVES, TAKES
from ..program import CallSignature
from ..rewriter import Rewriter
from ..torch_private import OpOverload, schema_of

Records = Mapping[Frame, Any]


def read_call_signatures(entries: Iterable[Any]) -> tuple[dict[Frame, CallSignature], Records]:
    """Return the preserved call signatures of an export, and the exporter's records that name the values.

    Args:
        entries: ``ep.module_call_graph``; the first is the root's.
    """
    signatures: dict[Frame, CallSignature] = {}
    records: dict[Frame, Any] = {}
    for entry in list(entries)[1:]:
        record = entry.signature
        # A strict export knows a module of two names by the first; under the second it asked for nothing, and left the
        # record of it empty beside a pytree that is not.
        if (
            record is not None
            and len(record.inputs) == record.in_spec.num_leaves
            and len(record.outputs) == record.out_spec.num_leaves
        ):
            frame = frame_of(entry.fqn)
            if "@" in frame.path:
                raise UnsupportedProgram(
                    f"the call signature of module {frame.path!r} was preserved, and the exporter takes what follows the @ in "
                    "its name for the number of a call; rename the module, or export without its signature"
                )
            records[frame] = record
            signatures[frame] = CallSignature(record.in_spec, record.out_spec, tuple(record.forward_arg_names or ()))
    return signatures, records


def frame_of(fqn: str) -> Frame:
    """Return the call that an entry of the exporter's is about.

    >>> str(frame_of("a.lin@1")), frame_of("user@host").path
    ('a.lin@1', 'user@host')
    """
    path, _, call = fqn.rpartition("@")
    return Frame(path, int(call)) if path and call.isdecimal() else Frame(fqn)


def check_paths(paths: Iterable[str]) -> None:
    """Raise if the name of a module is that of a later call of another.

    Args:
        paths: of modules.

    Raises:
        UnsupportedProgram: one of them is; the message names it.

    >>> check_paths(["a.lin", "user@host"])
    """
    for path in paths:
        odd = "@" in path and next((name for name in path.split(".") if frame_of(name).path != name), None)
        if odd:
            raise UnsupportedProgram(
                f"the module {path!r}: {odd!r} is how the exporter writes a later call of {frame_of(odd).path!r}, so the two "
                "cannot be distinguished; rename the module"
            )


def with_boundaries(graph: Graph, records: Records, renamed: Mapping[str, str]) -> Graph:
    """Return the root graph with two boundary nodes for each preserved call.

    Args:
        graph: the flat root.
        records: the exporter's records, which name values as the exporter does.
        renamed: values that import calls something else, the results of in-place operators on inputs.
    """
    if not records:
        return graph
    return _Boundaries(_outside(graph, records), renamed).graph_with(records)


def _outside(graph: Graph, records: Records) -> Graph:
    # A value without a stack was placed where it is used; what a call takes is made outside of it, as by a class of an argument
    # that computes when it is made.
    takers: dict[str, set[Frame]] = {}
    for frame, record in records.items():
        for argument in record.inputs:
            takers.setdefault(str(argument.name), set()).add(frame)
    found = {
        node.name: [depth for depth, frame in enumerate(node.stack) if frame in takers.get(node.name, ())] for node in graph.nodes
    }
    if not any(found.values()):
        return graph
    return graph.with_nodes([node.evolve(stack=node.stack[: min(found[node.name], default=None)]) for node in graph.nodes])


class _Boundaries:
    def __init__(self, graph: Graph, renamed: Mapping[str, str]) -> None:
        self.graph = graph
        self.edit = Rewriter(graph)
        self.renamed = renamed
        self.spans: dict[Frame, tuple[int, int, Stack]] = {}
        self._find_spans()

    def _find_spans(self) -> None:
        for number, node in enumerate(self.graph.nodes):
            for depth, frame in enumerate(node.stack, 1):
                first, _, stack = self.spans.get(frame, (number, number, node.stack[:depth]))
                self.spans[frame] = (first, number, stack)

    def graph_with(self, records: Records) -> Graph:
        """Return the graph with the nodes of all records in place."""
        for frame, record in records.items():
            inputs, outputs = self._leaves(record.inputs), self._leaves(record.outputs)
            begin, end = self._latest(inputs) + 1, self._latest(outputs)
            if frame not in self.spans:
                stack = self._place(frame)
                pair = [self._node(frame, TAKES, inputs, stack), self._node(frame, GIVES, outputs, stack)]
                self.edit.before(max(begin, end + 1), *pair)
                continue
            first, last, stack = self.spans[frame]
            # A call inside this one that begins at the same node comes later in the list, and ends earlier.
            self.edit.before(max(first, begin), self._node(frame, TAKES, inputs, stack))
            self.edit.after(max(last, end, begin - 1), self._node(frame, GIVES, outputs, stack), first=True)
        return self.edit.graph()

    def _leaves(self, arguments: Iterable[Any]) -> tuple[Arg, ...]:
        return tuple([self._result(self._leaf(argument)) for argument in arguments])

    def _leaf(self, argument: Any) -> Arg:
        if isinstance(argument, ConstantArgument):
            return argument.value
        if not isinstance(argument.name, str):
            return argument.name  # a size that was a number after all
        name = self.renamed.get(argument.name, argument.name)
        return Ref(name) if name in self.edit.position else None

    def _result(self, leaf: Arg) -> Arg:
        # Of an operator that gives the new contents of what it wrote beside its result (a BatchNorm in training, after a
        # decomposition), the exporter records the last value, which is not a result.
        item = self.graph.by_name.get(leaf.name) if type(leaf) is Ref else None
        if item is None or item.projection is None:
            return leaf
        whole, index = item.projection
        maker = self.graph.by_name.get(whole)
        if maker is None or not _is_written(maker, index):
            return leaf
        users = [self.graph.by_name[name] for name in self.graph.users.get(maker.name, ())]
        first = [node.name for node in users if node.do == item.do and node.args[1:] == (0,)]
        return Ref(first[0]) if first else leaf

    def _latest(self, leaves: tuple[Arg, ...]) -> int:
        return max((self.edit.position[leaf.name] for leaf in leaves if type(leaf) is Ref), default=-1)

    def _place(self, frame: Frame) -> Stack:
        # A call in which nothing was computed: it stands in the nearest module above it that was called.
        above = frame.path
        while above:
            above = above.rpartition(".")[0]
            outer = self.spans.get(Frame(above))
            if outer is not None:
                return (*outer[2], frame)
        return (frame,)

    def _node(self, frame: Frame, op: Op, leaves: tuple[Arg, ...], stack: Stack) -> Node:
        word = op.name.rpartition(".")[2]
        return Node(self.edit.names.fresh(word_of(f"{frame.path}.{word}")), op, leaves, (), stack)


def _is_written(node: Node, index: Any) -> bool:
    target = node.do.target if type(node.do) is Op else None
    results: Any = schema_of(target).returns if isinstance(target, OpOverload) else ()
    return index < len(results) and str(results[index].name).endswith("_out")
