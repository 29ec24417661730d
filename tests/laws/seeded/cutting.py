"""Mistakes in cutting a joint program in two, each with the law of partitions that finds it.

Each is made of a right partition, as small as it can be: other systems have had all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from attrs import evolve, frozen

import purefx as px
from purefx.ir.effects.resolved import node_effects
from purefx.ir.signature import UserInput
from purefx.laws.toy import COPY_, VIEW
from purefx.training import Partition, partition_joint
from purefx.transforms.memory import computes
from tests.laws.joint import some
from tests.laws.strategies.joint import CELLS

__all__ = ["CUTS", "Cut"]


@frozen
class Cut:
    """A wrong way to cut, and the name of the law of partitions that finds it."""

    cut: Callable[[px.Program], Partition]
    law: str

    @property
    def name(self) -> str:
        """What it does wrong."""
        return self.cut.__name__


CUTS: list[Cut] = []


def cut(law: str) -> Callable[[Callable[[px.Program], Partition]], Cut]:
    """Say of a function that it cuts wrong, and which law finds that."""

    def made(function: Callable[[px.Program], Partition]) -> Cut:
        CUTS.append(Cut(function, law))
        return CUTS[-1]

    return made


def recomputed(found: Partition, chosen: Callable[[px.Node, bool], bool]) -> Partition:
    """Return a partition whose backward computes what it is given, where its operands are there under their names.

    Args:
        found: a partition.
        chosen: says which nodes of the forward, and whether they do nothing but compute.
    """
    back, forward = found.backward, found.forward.main
    does = dict(zip([node.name for node in forward.nodes], node_effects(found.forward, forward), strict=True))
    there = {formal.name for formal in back.main.inputs}
    gone = [
        one
        for one in found.saved
        if (node := forward.by_name.get(one.name)) is not None
        and there.issuperset(node.refs())
        and chosen(node, computes(does[node.name]))
    ][:1]
    if not gone:
        return found
    names = {one.name for one in gone}
    left = [one for one in found.saved if one not in gone]
    pairs = [pair for pair in back.inputs if pair[0].name not in names]
    nodes = (*[forward.by_name[one.name] for one in gone], *back.main.nodes)
    main = px.Graph(tuple([formal for formal, _ in pairs]), nodes, back.main.output)
    return evolve(
        found, forward=keeping(found, left), backward=back.with_boundary(main, [spec for _, spec in pairs]), saved=tuple(left)
    )


def keeping(found: Partition, left: Iterable[object]) -> px.Program:
    """Return the forward that hands over some of what it did."""
    forward, count = found.forward, len(found.saved)
    handed = [arg for arg, one in zip(forward.main.output[-count:], found.saved, strict=True) if one in left]
    return with_outputs(forward, [*forward.main.output[:-count], *handed])


def with_outputs(forward: px.Program, output: list[object]) -> px.Program:
    """Return a forward that gives other values; those behind its own are what it hands over."""
    specs = forward.signature.outputs
    kept = (*specs, *specs[-1:] * (len(output) - len(specs)))[: len(output)]
    return forward.with_main(evolve(forward.main, output=tuple(output)), signature=evolve(forward.signature, outputs=kept))


@cut("one after the other")
def computes_again_over_a_write(program: px.Program) -> Partition:
    return recomputed(partition_joint(program), lambda node, pure: pure and type(node.do) is px.Op)


@cut("once")
def draws_again(program: px.Program) -> Partition:
    return recomputed(partition_joint(program), lambda node, _: getattr(node.do, "name", "") == "toy.rand")


@cut("one after the other")
def reads_new_contents_for_old(program: px.Program) -> Partition:
    found = partition_joint(program)
    copies = {node.name: node.args[0] for node in found.forward.main.nodes if node.name.endswith("_before")}
    output = [copies.get(getattr(arg, "name", ""), arg) for arg in found.forward.main.output]
    return evolve(found, forward=with_outputs(found.forward, output))


@cut("later")
def keeps_state_itself(program: px.Program) -> Partition:
    found = partition_joint(program)
    copies = {node.name: node.args[0] for node in found.forward.main.nodes if node.name.endswith("_kept")}
    output = [copies.get(getattr(arg, "name", ""), arg) for arg in found.forward.main.output]
    return evolve(found, forward=with_outputs(found.forward, output))


@cut("one after the other")
def exchanges_what_is_saved(program: px.Program) -> Partition:
    found = partition_joint(program, policy=some(1))
    output = list(found.forward.main.output)
    handed = range(len(output) - len(found.saved), len(output))
    made = [place for place in handed if getattr(found.forward.main.by_name.get(output[place].name), "do", None) in CELLS]
    for one, other in [made[:2]] if len(made) > 1 else []:
        output[one], output[other] = output[other], output[one]
    return evolve(found, forward=with_outputs(found.forward, output))


@cut("nothing for nothing")
def saves_what_nothing_needs(program: px.Program) -> Partition:
    found = partition_joint(program)
    extra = next((node.name for node in found.forward.main.nodes if node.name not in found.backward.main.metas), None)
    if extra is None or not found.saved:
        return found
    formals = [formal.name for formal, spec in found.backward.inputs if type(spec) is UserInput and spec.tangent_of is None]
    place = [formal.name for formal in found.backward.main.inputs].index(formals[-1]) + 1
    back, inputs = found.backward, list(found.backward.inputs)
    inputs.insert(place, (px.Input(extra), inputs[place - 1][1]))
    main = px.Graph(tuple([formal for formal, _ in inputs]), back.main.nodes, back.main.output)
    return evolve(
        found,
        forward=with_outputs(found.forward, [*found.forward.main.output, px.Ref(extra)]),
        backward=back.with_boundary(main, [spec for _, spec in inputs]),
        saved=(*found.saved, evolve(found.saved[-1], name=extra)),
    )


@cut("one after the other")
def forgets_what_the_forward_writes(program: px.Program) -> Partition:
    found = partition_joint(program)
    forward = found.forward
    gone = {node.name for node in forward.main.nodes if node.do == COPY_}
    nodes = [node.evolve(do=VIEW, args=node.args[:1]) if node.name in gone else node for node in forward.main.nodes]
    return evolve(found, forward=forward.with_main(forward.main.with_nodes(nodes)))
