"""Preserved call signatures: the exporter's records become border nodes in the graph.

One idea: a record names values of the flat graph; here each becomes two nodes inside its call (``ir/borders.py``), as early
and as late as the call and the values allow.  A value that is no longer there is None, as for the peers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from attrs import evolve
from torch.export.graph_signature import ConstantArgument

from ..arguments import Arg, Ref
from ..borders import GIVES, TAKES
from ..errors import UnsupportedProgram
from ..graph import Graph
from ..names import Names, word_of
from ..node import Frame, Node, Op, Stack
from ..program import CallSignature
from ..torch_private import OpOverload, schema_of

__all__ = ["check_paths", "frame_of", "read_call_signatures", "with_borders"]

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
    """Refuse modules that are called like later calls of others.

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
                f"the module {path!r}: {odd!r} is how the exporter writes a later call of {frame_of(odd).path!r}, so the two can "
                "not be told apart; rename the module"
            )


def with_borders(graph: Graph, records: Records, renamed: Mapping[str, str]) -> Graph:
    """Return the root graph with two border nodes for each preserved call.

    Args:
        graph: the flat root.
        records: the exporter's records, which name values as the exporter does.
        renamed: values that import calls something else, the results of in-place operators on inputs.
    """
    if not records:
        return graph
    return _Borders(graph, renamed).graph_with(records)


class _Borders:
    def __init__(self, graph: Graph, renamed: Mapping[str, str]) -> None:
        self.graph = graph
        self.renamed = renamed
        self.made = {formal.name: -1 for formal in graph.inputs}
        self.made.update((node.name, number) for number, node in enumerate(graph.nodes))
        self.names = Names(self.made)
        self.spans: dict[Frame, tuple[int, int, Stack]] = {}
        self._find_spans()

    def _find_spans(self) -> None:
        for number, node in enumerate(self.graph.nodes):
            for depth, frame in enumerate(node.stack, 1):
                first, _, stack = self.spans.get(frame, (number, number, node.stack[:depth]))
                self.spans[frame] = (first, number, stack)

    def graph_with(self, records: Records) -> Graph:
        """Return the graph with the nodes of all records in place."""
        before: dict[int, list[Node]] = {}
        after: dict[int, list[Node]] = {}
        for frame, record in records.items():
            inputs, outputs = self._leaves(record.inputs), self._leaves(record.outputs)
            begin, end = self._latest(inputs) + 1, self._latest(outputs)
            if frame not in self.spans:
                stack = self._place(frame)
                pair = [self._node(frame, TAKES, inputs, stack), self._node(frame, GIVES, outputs, stack)]
                before.setdefault(max(begin, end + 1), []).extend(pair)
                continue
            first, last, stack = self.spans[frame]
            # A call inside this one that begins at the same node comes later in the list, and ends earlier.
            before.setdefault(max(first, begin), []).append(self._node(frame, TAKES, inputs, stack))
            after.setdefault(max(last, end, begin - 1), []).insert(0, self._node(frame, GIVES, outputs, stack))
        nodes: list[Node] = []
        for number in range(-1, len(self.graph.nodes) + 1):
            nodes.extend(before.get(number, ()))
            if 0 <= number < len(self.graph.nodes):
                nodes.append(self.graph.nodes[number])
            nodes.extend(after.get(number, ()))
        return evolve(self.graph, nodes=tuple(nodes))

    def _leaves(self, arguments: Iterable[Any]) -> tuple[Arg, ...]:
        return tuple([self._result(self._leaf(argument)) for argument in arguments])

    def _leaf(self, argument: Any) -> Arg:
        if isinstance(argument, ConstantArgument):
            return argument.value
        if not isinstance(argument.name, str):
            return argument.name  # a size that was a number after all
        name = self.renamed.get(argument.name, argument.name)
        return Ref(name) if name in self.made else None

    def _result(self, leaf: Arg) -> Arg:
        # Of an operator that gives the new contents of what it wrote beside its result (a BatchNorm in training, after a
        # decomposition), the exporter records the last value, which is no result.
        item = self.graph.by_name.get(leaf.name) if type(leaf) is Ref else None
        if item is None or type(item.do) is not Op or item.do.name != "operator.getitem":
            return leaf
        whole, index = item.args
        maker = self.graph.by_name.get(whole.name) if isinstance(whole, Ref) else None
        if maker is None or not _is_written(maker, index):
            return leaf
        users = [self.graph.by_name[name] for name in self.graph.users.get(maker.name, ())]
        first = [node.name for node in users if node.do == item.do and node.args[1:] == (0,)]
        return Ref(first[0]) if first else leaf

    def _latest(self, leaves: tuple[Arg, ...]) -> int:
        return max((self.made[leaf.name] for leaf in leaves if type(leaf) is Ref), default=-1)

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
        return Node(self.names.fresh(word_of(f"{frame.path}.{word}")), op, leaves, (), stack)


def _is_written(node: Node, index: Any) -> bool:
    target = node.do.target if type(node.do) is Op else None
    results: Any = schema_of(target).returns if isinstance(target, OpOverload) else ()
    return index < len(results) and str(results[index].name).endswith("_out")
