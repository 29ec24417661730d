"""``to_model_explorer``: a program for Google's Model Explorer, with every module call opened, as the value that its file holds.

Calls are not nodes there: what a body computes stands in the namespace of the module that calls it, once for each call, and an
edge leads from the operator that made a value to the one that uses it.  Bodies of operators (``cond``) are graphs of their own,
and so are all bodies where opening them would take too many nodes.  Nothing is imported from Model Explorer, and no contents of
tensors are written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, evolve, field

from ..arguments import Arg, Ref, children_of, replace_refs
from ..calls.call_graph import times_called
from ..effects.declared import PURE
from ..graph import Call, Frame, Get, Graph, Node, Op, Stack
from ..inference import CallValues
from ..inference.walk import Called
from ..meta import Meta
from ..names import Names, is_below, join
from ..program import Module, Program
from ..signature import StateInput
from ..text.calls import print_effects
from ..text.contract import INPUT, OUTPUT
from ..text.printer import print_node
from ..verify import check
from .values import described, shown, source_line

__all__ = ["to_model_explorer"]

EDGES = 1000
"""Edges that lead to one node: results that hold each other twice each have any number of values."""

MOST = 100_000
"""Nodes of a program with every call opened; beyond this, calls are nodes that lead to the graphs of their bodies."""

Json = dict[str, Any]


def to_model_explorer(program: Program) -> Json:
    """Return a program as a graph collection of Model Explorer: ``json.dump`` it to a file, and ``model-explorer FILE`` shows it.

    Args:
        program: at any stage.

    Returns:
        Dicts, lists and texts alone, so that it can be changed and written.  Modules are namespaces, the types of values are in
        ``tensor_shape`` as text, dynamic sizes by their symbols, and the id of a node is the path of its module and its name.

    Raises:
        InvalidProgram: the program breaks invariants.
        TypeError: it is not a Program.

    >>> import torch, purefx as px
    >>> found = px.to_model_explorer(px.transform(px.capture(torch.nn.Sequential(torch.nn.ReLU()), (torch.ones(2),))))
    >>> [(node["id"], node["label"], node["namespace"]) for node in found["graphs"][0]["nodes"]]
    [('input', 'input', 'Inputs'), ('0/relu', 'aten.relu', '0'), ('return', 'return', '')]
    """
    check(program, asked_by="to_model_explorer")
    book = _Book(program)
    graphs = list(book.graphs())
    return {"label": graphs[0]["id"], "graphs": graphs}


class _Book:
    """The graphs of one collection: the root first, then the bodies that somebody leads to."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.classes = {one.path: one.type_name for one in program.modules if type(one) is Module and one.type_name}
        counts = times_called(program)
        size = sum(counts[name] * len(program.graphs[name].nodes) for name in program.order)
        self.opens_calls = size <= MOST
        self.values = CallValues(program)
        self.ids: dict[str, str] = {}
        self._names = Names([])

    def graphs(self) -> Iterator[Json]:
        """Iterate over the graphs; those that are found to be needed on the way come after."""
        root = self.program.root
        self.ids[root] = self._names.fresh(shown(self.classes.get("", "").rpartition(".")[2] or "program"))
        done = 0
        while done < len(self.ids):
            name = list(self.ids)[done]
            done += 1
            yield _Page(self, name).drawn()

    def id_of(self, graph: str) -> str:
        """Return the id of the graph that draws a body, which is then drawn too."""
        if graph not in self.ids:
            self.ids[graph] = self._names.fresh(shown(graph))
        return self.ids[graph]


@define
class _Open:
    """A body that is being gone through: where it is called, and what its values are outside."""

    graph: Graph
    run: Called | None
    """How it runs there, where its values differ from call to call."""
    calls: Stack
    """The module calls around it, from the root, with their paths from there."""
    values: dict[str, Arg]
    result: str = ""
    """The name in the body around it of what it gives."""
    at: int = field(default=0)

    @property
    def path(self) -> str:
        return self.calls[-1].path if self.calls else ""

    def stack(self, node: Node) -> Stack:
        return (*self.calls, *[Frame(join(self.path, frame.path), frame.call, frame.part) for frame in node.stack])


class _Page:
    """One graph of the collection.  A value is a ``Ref`` to a number, which says of which node it is which output."""

    def __init__(self, book: _Book, name: str) -> None:
        self._book = book
        self._name = name
        self._ids = Names([])
        self._nodes: list[Json] = []
        self._outputs: list[tuple[str, str]] = []
        self._groups: dict[str, Json] = {}
        self._places: dict[Stack, str] = {}
        self._calls: Counter[Stack] = Counter()

    def drawn(self) -> Json:
        """Return the graph."""
        program = self._book.program
        graph = program.graphs[self._name]
        signature = program.signature if self._name == program.root else None
        values: dict[str, Arg] = {}
        for number, formal in enumerate(graph.inputs):
            spec = None if signature is None else signature.inputs[number]
            place = "State" if type(spec) is StateInput else "Inputs"
            told = {"input": formal.name, **({} if spec is None else {"signature": INPUT.write(spec)})}
            values[formal.name] = self._add(formal.name, formal.name, place, told, formal.meta)
        run = self._book.values.root if signature is not None else None
        result = self._walk(_Open(graph if run is None else run.body, run, (), values))
        told = {} if signature is None else {str(at): OUTPUT.write(spec) for at, spec in enumerate(signature.outputs)}
        self._add("return", "return", "", told, uses=(result,))
        groups = {"": {"facts": ", ".join(sorted(program.facts))}, **self._groups}
        return {"id": self._book.ids[self._name], "nodes": self._nodes, "groupNodeAttributes": groups}

    def _walk(self, first: _Open) -> Arg:
        opened = [first]
        while True:
            body = opened[-1]
            if body.at < len(body.graph.nodes):
                node = body.graph.nodes[body.at]
                body.at += 1
                inner = self._step(body, node)
                opened += [] if inner is None else [inner]
                continue
            result = replace_refs(body.graph.output, body.values)
            opened.pop()
            if not opened:
                return result
            opened[-1].values[body.result] = result

    def _step(self, body: _Open, node: Node) -> _Open | None:
        # Adds the node, or returns the body that it calls, to go through that first.
        args = tuple([replace_refs(arg, body.values) for arg in node.args])
        kwargs = tuple([(key, replace_refs(arg, body.values)) for key, arg in node.kwargs])
        if type(node.do) is Call and self._book.opens_calls:
            run = self._book.values.inner(body.run, node, node.do.graph)
            graph = self._book.values.body(node.do.graph, run)
            inner = _Open(graph, run, self._called(body, node, node.do), {}, node.name)
            inner.values.update(zip([formal.name for formal in graph.inputs], args, strict=True))
            return inner
        picked = self._picked(node, args)
        body.values[node.name] = self._node(body, node, (*args, *[arg for _, arg in kwargs])) if picked is None else picked
        return None

    def _called(self, body: _Open, node: Node, do: Call) -> Stack:
        # Each call has a place of its own, also where calls have lost their numbers because they share one callable.
        above, instance = body.stack(node), do.instance
        frame = Frame(join(body.path, instance.path), instance.call, instance.part)
        calls = (*above, evolve(frame, call=frame.call + self._calls[*above, frame]))
        self._calls[*above, frame] += 1
        self._groups[self._place(calls)]["graph"] = shown(do.graph)
        return calls

    def _place(self, calls: Stack) -> str:
        # The namespace, and what the viewer says of it.
        place = self._places.get(calls)
        if place is None:
            place = self._places[calls] = namespace_of(calls)
            if calls:
                path = calls[-1].path
                self._groups[place] = {"module": shown(path), "class": shown(self._book.classes.get(path, "unknown"))}
        return place

    def _picked(self, node: Node, args: tuple[Arg, ...]) -> Arg | None:
        # One of several results is an output of the node that has them; what is not known to be that stays a node.
        if type(node.do) is not Op or node.do.name != "operator.getitem" or len(args) != 2 or type(args[1]) is not int:
            return None
        of, index = args
        if isinstance(of, tuple):
            return of[index] if -len(of) <= index < len(of) else None
        if type(of) is not Ref or index < 0:
            return None
        maker, output = self._outputs[int(of.name)]
        return self._value(maker, str(index)) if output == SEVERAL else None

    def _node(self, body: _Open, node: Node, uses: tuple[Arg, ...]) -> Arg:
        do = node.do
        told = {"name": node.name, "text": print_node(node), "source": source_line(node.meta)}
        match do:
            case Op():
                label = do.name.removesuffix(".default")
                told["effects"] = None if do.effects == PURE else print_effects(do.effects)
            case Call():
                label = str(do.instance)
            case Get():
                label = told["state"] = join(body.path, do.slot)
        stack = body.stack(node)
        name = f"{stack[-1]}/{node.name}" if stack else node.name
        made = self._add(name, label, self._place(stack), told, node.meta, uses)
        if callees := dict.fromkeys(node.callees):
            self._nodes[-1]["subgraphIds"] = [self._book.id_of(graph) for graph in callees]
        return made

    def _add(
        self,
        name: str,
        label: str,
        place: str,
        told: Mapping[str, str | None],
        meta: Meta | None = None,
        uses: tuple[Arg, ...] = (),
    ) -> Arg:
        value = None if meta is None else meta.get("val")
        several = isinstance(value, tuple | list)
        sources = [self._outputs[int(one.name)] for one in _refs(uses)]
        identity = self._ids.fresh(shown(name))
        self._nodes.append({
            "id": identity,
            "label": shown(label),
            "namespace": place,
            "attrs": [_pair(key, text) for key, text in told.items() if text],
            "incomingEdges": [
                {"sourceNodeId": node, "sourceNodeOutputId": output if output != SEVERAL else "0", "targetNodeInputId": str(at)}
                for at, (node, output) in enumerate(sources)
            ],
            "outputsMetadata": [
                {"id": str(at), "attrs": [_pair("tensor_shape", text)]}
                for at, one in enumerate(value if several else (value,))
                if (text := described(one)) is not None
            ],
        })  # fmt: skip
        return self._value(identity, SEVERAL if several else "0")

    def _value(self, node: str, output: str) -> Ref:
        self._outputs.append((node, output))
        return Ref(str(len(self._outputs) - 1))


SEVERAL = "all"
"""What stands for all outputs of a node that has several."""


def namespace_of(calls: Stack) -> str:
    """Return the namespace of what is computed in some module calls, each in the one before it.

    >>> namespace_of((Frame("layers.0", 1), Frame("layers.0.mlp"), Frame("act")))
    'layers/0@1/mlp/act'
    """
    segments: list[str] = []
    above = ""
    for frame in calls:
        inner = frame.path[len(above) + 1 :] if above and is_below(frame.path, above) else frame.path
        parts = [shown(part).replace("/", "\N{DIVISION SLASH}") for part in inner.split(".")]
        segments += [*parts[:-1], f"{parts[-1]}{Frame('', frame.call, frame.part)}"]
        above = frame.path
    return "/".join(segments)


def _refs(args: tuple[Arg, ...]) -> Iterator[Ref]:
    todo: list[Arg] = list(reversed(args))
    for _ in range(EDGES):
        if not todo:
            return
        part = todo.pop()
        if type(part) is Ref:
            yield part
        else:
            todo.extend(reversed(children_of(part)))


def _pair(key: str, text: str) -> Json:
    return {"key": key, "value": shown(text)}
