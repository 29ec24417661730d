"""Call sites of modules: the calling convention of a preserved signature, and the arguments and results of each call.

A convention maps leaves of pytrees to inputs of a body.  Pass-through results (which are arguments) are distinct from
new values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

from attrs import frozen

from ..arguments import Arg, Ref
from ..effects.resolved import item_of
from ..errors import SwapError
from ..graph import Call, Graph, Node
from ..inference import returned_input
from ..own_operators import GIVES, TAKES, is_boundary
from ..program import CallSignature, Program
from ..torch_private import pytree
from .call_graph import signatures_of_bodies


@frozen
class Convention:
    """The calling convention of a body with a preserved call signature."""

    signature: CallSignature
    takes: tuple[Arg, ...]
    """The leaves of the arguments, as inputs of the body or literals."""
    gives: tuple[Arg, ...]
    """The leaves of the result."""
    inputs: tuple[int, ...]
    """For each input of the body, its leaf; or -1 if it is not part of the arguments."""
    outputs: tuple[int, ...]
    """For each value that the caller uses, its leaf in the result; or -1."""
    single: bool
    """Whether the body returns one value and not a tuple."""
    unnamed: tuple[str, ...]
    """Values that the caller uses and that are not part of the result."""

    @property
    def is_closed(self) -> bool:
        """Whether arguments and result hold all values that cross."""
        return -1 not in self.inputs and -1 not in self.outputs


def conventions(program: Program) -> dict[str, Convention]:
    """Return the calling convention of each body with a preserved call signature, by graph id.

    >>> from purefx.ir import Graph, Program
    >>> conventions(Program.of({"": Graph((), (), ())}))
    {}
    """
    found = {
        name: _convention(program.graphs[name], signature)
        for name, signature in signatures_of_bodies(program).items()
    }
    return {name: convention for name, convention in found.items() if convention is not None}


def _convention(graph: Graph, signature: CallSignature) -> Convention | None:
    boundaries = {
        node.op_name: node for node in graph.nodes if not node.stack and is_boundary(node)
    }
    if len(boundaries) < 2:
        return None  # a piece of a call that was cut
    takes, gives = boundaries[TAKES.name].args, boundaries[GIVES.name].args
    first = _first_places(takes)
    results = _first_places(gives)
    names = graph.output_refs()
    return Convention(
        signature,
        takes,
        gives,
        tuple([first.get(formal.name, -1) for formal in graph.inputs]),
        tuple([results.get(name, -1) for name in names]),
        type(graph.output) is not tuple,
        tuple([name for name in names if name not in results]),
    )


def _first_places(leaves: tuple[Arg, ...]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, leaf in enumerate(leaves):
        if type(leaf) is Ref:
            found.setdefault(leaf.name, number)
    return found


def without_boundaries(graph: Graph, convention: Convention | None) -> Graph:
    """Return a body without boundary nodes; with a convention, the output also has the leaves of the result.

    >>> from purefx.ir import Input
    >>> graph = Graph((Input("x"),), (Node("t", TAKES, (Ref("x"),)),), Ref("x"))
    >>> without_boundaries(graph, None).nodes
    ()
    """
    if convention is None and not any(map(is_boundary, graph.nodes)):
        return graph
    nodes: list[Node] = [node for node in graph.nodes if not is_boundary(node)]
    output: Any = graph.output if convention is None else (graph.output, convention.gives)
    return Graph(graph.inputs, tuple(nodes), output)


@frozen
class CallSite:
    """One call of a module that is swapped."""

    path: str
    """The module, from the root."""
    node: Node
    call: Call
    convention: Convention
    leaves: tuple[Arg, ...]
    """The leaves of the arguments, in terms of the caller."""
    through: Mapping[str, int]
    """The result leaves that are values of the caller, by name."""
    same: Mapping[int, str]
    """Pass-through results under another name, as of ``x.to(x.dtype)``: the value of the caller, by leaf."""


def site_of(
    program: Program, path: str, caller: Graph, node: Node, convention: Convention | None
) -> CallSite:
    """Return the arguments and results of a module call.

    Args:
        program: the program with the call.
        path: the module, from the root.
        caller: the graph with the call.
        node: the call.
        convention: that of its body; None if no signature was preserved.

    Raises:
        SwapError: no signature was preserved, or values cross that the signature does not name.
    """
    call = node.do
    assert type(call) is Call
    where = f"module {path!r} (call {node.name})"
    if convention is None:
        raise SwapError(f"{where} {_why_not(program, call, path)}")
    if convention.unnamed:
        are = (
            "are used outside but are" if len(convention.unnamed) > 1 else "is used outside but is"
        )
        raise SwapError(
            f"{where}: {', '.join(convention.unnamed)} {are} not part of its result, so a replacement cannot return "
            f"{'them' if len(convention.unnamed) > 1 else 'it'}; swap an enclosing module"
        )
    graph = program.graphs[call.graph]
    actual = {formal.name: arg for formal, arg in zip(graph.inputs, node.args, strict=True)}
    inside = [
        leaf.name for leaf in convention.takes if type(leaf) is Ref and leaf.name not in actual
    ]
    if inside:
        raise SwapError(
            f"{where}: its argument {inside[0]} is computed inside it; swap an enclosing module"
        )
    leaves = tuple([actual[leaf.name] if type(leaf) is Ref else leaf for leaf in convention.takes])
    through = _first_places(
        tuple([actual.get(leaf.name) if type(leaf) is Ref else None for leaf in convention.gives])
    )
    return CallSite(
        path,
        node,
        call,
        convention,
        leaves,
        through,
        _same(program, graph, convention, caller, actual),
    )


def _why_not(program: Program, call: Call, path: str) -> str:
    again = f"preserve_module_call_signature=({path!r},)"
    if any(frame.path == path for frame in program.call_signatures):
        return f"has no preserved call signature, unlike its other calls; export again with {again}"
    inputs = ", ".join([formal.name for formal in program.graphs[call.graph].inputs])
    flat = (
        f'; or pass signature="flat" to pass the tensors ({inputs}) to the replacement by position'
    )
    return f"has no preserved call signature, so its arguments and results are not known; export again with {again}{flat}"


def _same(
    program: Program, graph: Graph, convention: Convention, caller: Graph, actual: Mapping[str, Arg]
) -> dict[int, str]:
    passed = {formal: arg.name for formal, arg in actual.items() if type(arg) is Ref}
    known = {
        formal: caller.metas[name]["val"]
        for formal, name in passed.items()
        if "val" in caller.metas[name]
    }
    found: dict[int, str] = {}
    for number, leaf in enumerate(convention.gives):
        if type(leaf) is Ref and leaf.name in graph.by_name:
            formal = returned_input(program, graph, leaf.name, known)
            if formal is not None and formal in passed:
                found[number] = passed[formal]
    return found


def flat_convention(graph: Graph) -> Convention:
    """Return the convention of a body with positional inputs and unchanged results.

    >>> from purefx.ir import Input
    >>> flat_convention(Graph((Input("x"),), (), Ref("x"))).inputs
    (0,)
    """
    takes = tuple([Ref(formal.name) for formal in graph.inputs])
    given = tuple([Ref(name) for name in graph.output_refs()])
    single = type(graph.output) is not tuple
    in_spec = pytree.tree_structure(((0,) * len(takes), {}))
    signature = CallSignature(in_spec, pytree.tree_structure(0 if single else (0,) * len(given)))
    return Convention(
        signature, takes, given, tuple(range(len(takes))), tuple(range(len(given))), single, ()
    )


Through = Literal["refuse", "result", "argument"]


def passed_on(graph: Graph, site: CallSite, through: Through, *, is_root: bool) -> frozenset[str]:
    """Return the substitution after a call: the values of the caller that now refer to its result.

    Args:
        graph: the caller.
        site: the call; ``through`` has its unchanged results.
        through: the meaning of ambiguous later uses.
        is_root: whether the caller is the root.

    Raises:
        SwapError: several later uses are ambiguous.
    """
    later = uses_of_passed(graph, site)
    if through == "refuse":
        for why in (
            *unclear_results(graph, site, is_root=is_root),
            *_unclear_arguments(graph, site, later, is_root=is_root),
        ):
            raise SwapError(
                f'{why}; pass through="result" or through="argument", or swap an enclosing module'
            )
    return (
        frozenset()
        if through == "argument"
        else frozenset([name for name in site.through if later[name]])
    )


def uses_of_passed(graph: Graph, site: CallSite) -> Mapping[str, list[str]]:
    """Return the uses of pass-through results after a call: for each value, the names of nodes.

    Args:
        graph: the caller.
        site: the call.
    """
    place = next(number for number, node in enumerate(graph.nodes) if node is site.node)
    return {name: _uses(graph, {name}, place + 1) for name in site.through}


CALLER = "the result of the caller"


def _uses(graph: Graph, names: Collection[str], begin: int = 0) -> list[str]:
    # The nodes from a number on that use some values, once for each use.
    found = [
        node.name
        for node in graph.nodes[begin:]
        if not is_boundary(node)
        for name in node.refs()
        if name in names
    ]
    return found + [CALLER for name in graph.output_refs() if name in names]


def unclear_results(graph: Graph, site: CallSite, *, is_root: bool) -> Iterator[str]:
    """Yield why a pass-through result under a separate name is ambiguous: uses may refer to the argument or the result.

    Args:
        graph: the caller.
        site: the call; ``same`` has these results.
        is_root: whether the caller is the root.
    """
    for place, leaf in enumerate(site.convention.outputs):
        if leaf in site.same:
            names = (
                {site.node.name} if site.convention.single else _taken(graph, site.node.name, place)
            )
            uses = _uses(graph, names)
            escapes = not is_root and CALLER in uses
            yield from _unclear(
                site, f"{site.same[leaf]}, the object that was passed to it", uses, escapes=escapes
            )


def _taken(graph: Graph, call: str, place: int) -> set[str]:
    return {node.name for node in graph.users_of(call) if item_of(node) == (call, place)}


def _unclear_arguments(
    graph: Graph, site: CallSite, later: Mapping[str, list[str]], *, is_root: bool
) -> Iterator[str]:
    # One level up, an input of the caller that its boundary returns is ambiguous as well.
    inputs = set[str]() if is_root else set(graph.input_names)
    boundaries = [node for node in graph.nodes if node.do == GIVES and not node.stack]
    for name in site.through:
        returned = any(Ref(name) in node.args for node in boundaries)
        escapes = name in inputs and (returned or not later[name])
        yield from _unclear(site, f"its argument {name} unchanged", later[name], escapes=escapes)


def _unclear(site: CallSite, what: str, uses: list[str], *, escapes: bool) -> Iterator[str]:
    said = f"module {site.path!r}: the call {site.node.name} returns {what}"
    if len(uses) > 1 and not escapes:
        users = ", ".join(dict.fromkeys(uses))
        yield f"{said}, and {users} use it {len(uses)} times afterwards, which may mean the argument or the result"
    elif escapes:
        yield f"{said}, and so may the calling module, where argument and result are indistinguishable"
