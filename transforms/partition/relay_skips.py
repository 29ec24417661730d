"""``relay_skips``: what a part needs from further back is handed through the parts between.

One idea: one walk over the parts from the last user back to the maker says which values each part must hand on; then each of
these takes the value and gives it back as it is, so every part uses only what the part before it gives.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...ir.arguments import Arg, Ref
from ...ir.chain import Chain, chain_of
from ...ir.meta import Meta
from ...ir.names import Names
from ...ir.program import Program
from ...ir.signature import GIVEN
from ..fuel import UNLIMITED, Fuel
from ..metas import value_only
from ..transformation import transformation
from .open_part import OpenPart
from .rebuilt import rebuilt

__all__ = ["relay_skips"]


@transformation(
    proven=True,
    forgets={"deduplicated"},
    laws=[
        "every part takes only what the part before it gives",
        "parts compute what they computed",
    ],
)
def relay_skips(program: Program, *, fuel: Fuel = UNLIMITED) -> Program:
    """Hand values that skip parts through the parts between, so that each part uses only what the one before it gives.

    Before::

        graph ""        a = call @stage0(x);  b = call @stage1(a);  c = call @stage2(b, x)
        graph "stage1"  (a) { b = aten.relu.default(a);  return b }

    After::

        graph ""        a, x_1 = call @stage0(x);  b, x_2 = call @stage1(a, x_1);  c = call @stage2(b, x_2)
        graph "stage1"  (a, x) { b = aten.relu.default(a);  return (b, x) }

    The first part is given the user inputs; what the caller gets is relayed to the last part. Values of any kind are relayed,
    numbers too, though ``torch.distributed.pipelining`` carries tensors only: ``move_non_tensor_nodes`` goes before it.

    Args:
        program: a split program, see ``split_by_tags``.
        fuel: a rewrite is one value that is relayed, in the order in which they are made, inputs first.

    Returns:
        The program in which no value skips a part.

    Raises:
        UnsupportedProgram: the root of the program does something itself, so it is not split.

    >>> import purefx as px
    >>> uses = (("a", "x"), ("b", "a"), ("c", "bx"))
    >>> nodes = tuple([px.Node(name, px.Op("toy.op"), tuple(map(px.Ref, args))) for name, args in uses])
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), nodes, (px.Ref("c"),))})
    >>> split = px.split_by_tags(program, ("stage0", "stage1", "stage2"), tag_of=dict(a="stage0", b="stage1", c="stage2"))
    >>> print(px.relay_skips(split).graphs["stage1"])
    graph @""(a, x) {
      b = toy.op(a) ! pure
      return (b, x)
    }
    """
    chain = chain_of(program, asked_by="relay_skips")
    through = _through(program, chain, fuel)
    if not any(through):
        return program
    main = program.main
    names = Names([*(formal.name for formal in main.inputs), *(node.name for node in main.nodes)])
    parts = [OpenPart(part, program.graphs[part.graph], names) for part in chain.parts]
    metas: dict[str, Meta] = {value.name: value.meta for value in (*main.inputs, *main.nodes)}
    now: dict[str, str] = {}
    """For each value that is relayed, what it is called after the last part that handed it on."""
    for part, values in zip(parts, through, strict=True):
        part.use(lambda name: now.get(chain.value(name), name))
        for value in values:
            inner = part.take(now.get(value, value), value, value_only(metas[value]))
            now[value] = part.give(inner, value)
            metas[now[value]] = metas[value]
    output = {at: now[value] for at, value in _returned(program, chain) if value in now}
    return rebuilt(program, chain, parts, metas=metas, output=output)


def _through(program: Program, chain: Chain, fuel: Fuel) -> list[list[str]]:
    # For each part the values that it must hand on, in the order in which they are made.
    needed: dict[str, int] = {}
    """The last part that uses a value, by its first name; what the caller gets is used behind the last."""
    for number, part in enumerate(chain.parts):
        for name in part.node.refs():
            needed[chain.value(name)] = number
    needed.update(dict.fromkeys([value for _, value in _returned(program, chain)], len(chain.parts)))
    found: list[list[str]] = [[] for _ in chain.parts]
    made = [*(formal.name for formal in program.main.inputs), *(node.name for node in program.main.nodes)]
    for value in made:
        first = _made_by(value, chain.makers) + 1
        last = needed.get(value, 0)
        if first < last and fuel.burn("relay", repr(value)):
            for values in found[first:last]:
                values.append(value)
    return found


def _made_by(value: str, makers: Mapping[str, tuple[int, int]]) -> int:
    # An input comes from before the first part, which is given all of them.
    return makers[value][0] if value in makers else -1


def _returned(program: Program, chain: Chain) -> list[tuple[int, str]]:
    # What the caller gets; new contents of buffers and inputs are written back where they are made.
    specs = program.signature.outputs
    outputs: tuple[Arg, ...] = program.main.output
    given = [type(spec) in GIVEN for spec in specs] if len(specs) == len(outputs) else [True] * len(outputs)
    pairs = zip(enumerate(outputs), given, strict=True)
    return [(at, chain.value(arg.name)) for (at, arg), is_given in pairs if is_given and type(arg) is Ref]
