"""Sites: the calls of a module that is swapped, and what each of them takes and gives.

One idea: a body with borders says which leaf is which of its values; from that and the call follow the arguments that eager
passed and the leaves of the result that the caller uses.  What can not be said so is refused here, before anything is made.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from ..arguments import Arg, Ref, refs_in
from ..conventions import Convention
from ..errors import SwapError
from ..fakes import input_given_back
from ..graph import Graph
from ..meta import Meta
from ..node import Call, Node
from ..program import CallSignature, Program
from ..torch_private import pytree

__all__ = ["Site", "flat_convention", "site_of"]


@frozen
class Site:
    """One call of a module that is swapped."""

    path: str
    """The module, from the root."""
    node: Node
    call: Call
    convention: Convention
    leaves: tuple[Arg, ...]
    """The leaves of the arguments, in terms of the caller."""
    through: Mapping[str, int]
    """Values of the caller that the original gave back as they were: the leaf of the result, by name."""
    same: Mapping[int, str]
    """The same for what it gave back under another name, as ``x.to(x.dtype)`` does: the value of the caller, by leaf."""


def site_of(program: Program, path: str, caller: Graph, node: Node, convention: Convention | None) -> Site:
    """Return what a call of a module takes and gives.

    Args:
        program: where it is.
        path: the module, from the root.
        caller: the graph that the call is in.
        node: the call.
        convention: how its body is called; None where no signature was preserved.

    Raises:
        SwapError: no signature was preserved, the call was cut, or values cross that the signature does not name.
    """
    call = node.do
    assert type(call) is Call
    where = f"module {path!r} (call {node.name})"
    if call.instance.part or convention is None:
        raise SwapError(f"{where} {_why_not(program, call, path)}")
    if convention.unnamed:
        raise SwapError(
            f"{where}: {', '.join(convention.unnamed)} is used outside of it and is no part of its result, so nothing that "
            "stands in for it could give that; swap a module around it, whose result or inside that is"
        )
    graph = program.graphs[call.graph]
    actual = {formal.name: arg for formal, arg in zip(graph.inputs, node.args, strict=True)}
    inside = [leaf.name for leaf in convention.takes if type(leaf) is Ref and leaf.name not in actual]
    if inside:
        raise SwapError(f"{where}: its argument {inside[0]} is computed inside of it; swap a module around it")
    leaves = tuple([actual[leaf.name] if type(leaf) is Ref else leaf for leaf in convention.takes])
    same = _same(program, graph, convention, _ours(caller, actual))
    return Site(path, node, call, convention, leaves, _through(convention, actual), same)


def _why_not(program: Program, call: Call, path: str) -> str:
    again = f"preserve_module_call_signature=({path!r},)"
    if call.instance.part:
        return "was cut in pieces, because other nodes must run in between; swap a module around it"
    if any(frame.path == path for frame in program.call_signatures):
        return f"has no preserved call signature, other calls of it have; export again with {again}"
    flat = f'; or pass signature="flat" to give the replacement the tensors {_inputs(program.graphs[call.graph])} by position'
    return f"has no preserved call signature, so what it took and gave is not known; export again with {again}{flat}"


def _inputs(graph: Graph) -> str:
    return f"({', '.join([formal.name for formal in graph.inputs])})"


def _ours(caller: Graph, actual: Mapping[str, Arg]) -> dict[str, tuple[str, Meta]]:
    # The values that are passed, each with what its caller knows of it.
    inputs = {formal.name: formal.meta for formal in caller.inputs}
    passed = {formal: arg.name for formal, arg in actual.items() if type(arg) is Ref}
    return {formal: (name, inputs[name] if name in inputs else caller.by_name[name].meta) for formal, name in passed.items()}


def _same(program: Program, graph: Graph, convention: Convention, ours: Mapping[str, tuple[str, Meta]]) -> dict[int, str]:
    known = {formal: meta["val"] for formal, (_, meta) in ours.items() if "val" in meta}
    found: dict[int, str] = {}
    for number, leaf in enumerate(convention.gives):
        if type(leaf) is Ref and leaf.name in graph.by_name:
            formal = input_given_back(program, graph, leaf.name, known)
            if formal is not None and formal in ours:
                found[number] = ours[formal][0]
    return found


def _through(convention: Convention, actual: Mapping[str, Arg]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, leaf in enumerate(convention.gives):
        value = actual.get(leaf.name) if type(leaf) is Ref else None
        if type(value) is Ref:
            found.setdefault(value.name, number)
    return found


def flat_convention(graph: Graph) -> Convention:
    """Return the convention of a body whose inputs are taken by position, and whose results are given as they are.

    >>> from purefx.ir import Input
    >>> flat_convention(Graph((Input("x"),), (), Ref("x"))).inputs
    (0,)
    """
    takes = tuple([Ref(formal.name) for formal in graph.inputs])
    given = tuple([Ref(name) for name in refs_in((graph.output,))])
    single = type(graph.output) is not tuple
    in_spec = pytree.tree_structure(((0,) * len(takes), {}))
    out_spec = pytree.tree_structure(0 if single else (0,) * len(given))
    signature = CallSignature(in_spec, out_spec)
    return Convention(signature, takes, given, tuple(range(len(takes))), tuple(range(len(given))), single, ())
