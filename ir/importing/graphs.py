"""The graphs of one ``GraphModule``, those that are nested in it included, become ``Graph`` values.

Nodes are read in ``nodes.py``; what the exporter left in no module call is placed here, where its neighbours are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
import torch.fx

from ..arguments import TREES, Arg, refs_in
from ..errors import UnsupportedProgram
from ..graph import Graph, Node, Op, Stack, common_prefix
from ..operators import Said, op_of
from .nodes import NodeReader
from .reading import check_output, where
from .regions import is_from_region, place_boundaries, place_regions, settle_bodies
from .stacks import StackReader


class GraphReader:
    """Reads the graphs of one ``GraphModule``, those nested in it included.

    Args:
        places: the paths of the module hierarchy.
        slots: the state behind each input of the root.
    """

    def __init__(self, places: Iterable[str] = (), slots: Mapping[str, str] | None = None) -> None:
        self.graphs: dict[str, Graph] = {}
        self.stacks = StackReader(places, slots)
        self.slots: Mapping[str, str] = slots or {}
        self.renamed: dict[str, str] = {}
        """Values of the root that alias an input: the results of in-place operators on it."""
        self.placed: Mapping[Any, Any] = {}
        """Module stacks of fx nodes that do not have theirs in their meta."""
        self.said: Said = {}
        """What operators of other libraries are declared to do."""
        self.provenance = True
        """Whether nodes and inputs get an origin."""
        self._ops: dict[Any, Op] = {}
        self._todo: list[tuple[str, torch.fx.GraphModule]] = []
        self._unplaced: dict[str, frozenset[str]] = {}

    def read(self, module: torch.fx.GraphModule) -> None:
        """Fill ``graphs``: the root under ``""``, a nested one under ``"$" + its attribute path``.

        Raises:
            UnsupportedProgram: a node that an exported program cannot have, or an argument of an unknown type.
        """
        nested = [found for found in module.modules() if isinstance(found, torch.fx.GraphModule)]
        self.stacks.aliases.learn(node for found in nested for node in found.graph.nodes)
        self._todo.append(("", module))
        while self._todo:
            name, nested = self._todo.pop()
            if name not in self.graphs:
                self.graphs[name] = self._graph(name, nested)
        if len(self.graphs) > 1:
            settle_bodies(self.graphs, self._unplaced)

    def _graph(self, name: str, module: torch.fx.GraphModule) -> Graph:
        fx_nodes = check_output(module.graph, name)
        reader = NodeReader(name, self.stacks, self._op, self.placed, provenance=self.provenance)
        output: Arg = ()
        for fx_node in fx_nodes:
            kind = fx_node.op
            if kind == "call_function":
                reader.node(fx_node)
            elif kind == "placeholder":
                reader.formal(fx_node)
            elif kind == "output":
                reader.known.user = fx_node
                output = reader.argument(fx_node.args[0])
            elif kind == "get_attr":
                found = attribute_at(module, fx_node)
                if isinstance(found, TREES):  # of `flat_apply`, which flex attention indexes captured tensors with
                    reader.literal(fx_node, found)
                else:
                    reader.body(fx_node, self._body(name, found, fx_node))
            else:
                raise UnsupportedProgram(f"{where(fx_node)}: an exported program has no {kind!r} node")
        graph = Graph(tuple(reader.inputs.values()), tuple(reader.nodes), output)
        if not name:
            self.renamed = reader.renamed
        return graph.with_nodes(self._placed(name, reader, graph))

    def _placed(self, name: str, reader: NodeReader, graph: Graph) -> list[Node]:
        # The nodes, those that the exporter left in no call where their neighbours are.
        nodes, stacks = reader.nodes, reader.stacks
        strays = {node.name for node in nodes if not node.stack and is_from_region(node.meta)}
        if strays and not name:
            outside = {formal for formal in reader.inputs if formal not in self.slots}.union(refs_in((graph.output,)))
            nodes = place_regions(nodes, strays, outside)
        if any(op.effects.scope for op in self._ops.values()):
            nodes = place_boundaries(nodes)
        if None in stacks.values():
            nodes = place_unplaced(nodes, stacks)
            self._unplaced[name] = frozenset(node for node, stack in stacks.items() if stack is None)
        return nodes

    def _op(self, target: Any) -> Op:
        op = self._ops.get(target)
        if op is None:
            op = self._ops[target] = op_of(target, self.said)
        return op

    def _body(self, owner: str, found: Any, fx_node: Any) -> str:
        if not isinstance(found, torch.fx.GraphModule):
            raise UnsupportedProgram(f"{where(fx_node)}: reads the attribute {fx_node.target!r}, a {type(found).__name__}")
        name = f"{owner}.{fx_node.target}" if owner else f"${fx_node.target}"
        self._todo.append((name, found))
        return name


def attribute_at(module: torch.fx.GraphModule, fx_node: Any) -> Any:
    """Return the attribute that a node reads; None where there is none."""
    found: Any = module
    for part in str(fx_node.target).split("."):
        found = getattr(found, part, None)
    return found


def place_unplaced(nodes: list[Node], stacks: Mapping[str, Stack | None]) -> list[Node]:
    """Give nodes without a module stack (hand-written passes forget it) the innermost one that holds all around them.

    That is the longest common prefix of the stacks of the nodes that they use and that use them.
    """
    around: dict[str, list[Stack]] = {name: [] for name, stack in stacks.items() if stack is None}
    for node in nodes:
        mine = stacks[node.name]
        for name in node.refs():
            theirs = stacks.get(name)
            if name in around and mine is not None:
                around[name].append(mine)
            if mine is None and theirs is not None:
                around[node.name].append(theirs)
    return [node.evolve(stack=common_prefix(around[node.name])) if node.name in around else node for node in nodes]
