"""Laws of split programs: how parts take and give, what crosses between them, and what joining returns.

Parts keep the order, the state and the meaning of the whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from attrs import evolve

from purefx.ir.analysis.numbers import is_number
from purefx.ir.arguments import Ref
from purefx.ir.calls.call_graph import instances
from purefx.ir.calls.parts import PART, original, parts, split_provenance
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.graph import Call, Get, Node, Op
from purefx.ir.names import join as joined_path
from purefx.ir.program import Program
from purefx.ir.signature import GIVEN
from purefx.laws.law import Case, Transform
from purefx.transforms import inline, join, split_by_tags
from purefx.transforms.partition.cut import one_read_each
from tests.laws.aimed import law
from tests.laws.aims import legal_tags, split_across_sizes, split_somewhere


@law(
    "the root only calls parts, which accept and return exactly the values that cross, in graph order"
)
def parts_tight(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    root, found = result.main, list[str]()
    rank = {
        name: number
        for number, name in enumerate(
            [*(formal.name for formal in root.inputs), *(n.name for n in root.nodes)]
        )
    }
    used = {name for node in root.nodes for name in node.refs()} | set(root.output_refs())
    for node in root.nodes:
        if type(node.do) is not Call:
            if node.projection is None:
                found.append(f"the root does {node} itself")
        elif [rank[name] for name in node.refs()] != sorted({rank[name] for name in node.refs()}):
            found.append(
                f"{node} takes its inputs in another order than that of the graph, or one twice"
            )
        if node.name not in used and not (
            type(node.do) is Call and result.graphs[node.do.graph].output == ()
        ):
            found.append(f"{node.name} crosses a boundary and nobody uses it")
    for part in parts(result):
        body = result.graphs[part.graph]
        within = {name for node in body.nodes for name in node.refs()}
        made = {node.name: number for number, node in enumerate(body.nodes)}
        found += [
            f"{part.name} takes {formal.name} and does not use it"
            for formal in body.inputs
            if formal.name not in within
        ]
        given = [made.get(name, -1) for name in body.output_refs()]
        found += (
            [f"{part.name} returns what it does not make, or in another order"]
            if given != sorted(set(given))
            else []
        )
        found += [f"{part.name} returns what it does not make"] if -1 in given else []
    return found


@law("each part has the state that it reads, and state of one reader is in one part")
def state_placed(transform: Transform, case: Case) -> list[str]:
    program, result = case.program, transform(case.program)
    names = {part.name for part in parts(result)}
    if not names:
        return []
    readers: dict[str, set[str]] = {}
    for name, path in [
        place for part in parts(result) for place in instances(result, part.graph, part.name)
    ]:
        for node in result.graphs[name].nodes:
            if type(node.do) is Get:
                slot = joined_path(path, node.do.slot)
                readers.setdefault(original(slot, names), set()).add(slot.partition(".")[0])
                if slot.partition(".")[0] != path.partition(".")[0]:
                    return [f"a body of {path} reads {slot}"]
    went = split_provenance(result).state
    found = [f"{name} is lost" for name in split_provenance(program).state if name not in went]
    for name, now in went.items():
        having = {slot.partition(".")[0] for slot in now}
        if (
            len(having) != len(now)
            or (having != readers.get(name, having))
            or (name not in readers and len(now) != 1)
        ):
            found.append(f"{name} is now {now}, read by {sorted(readers.get(name, ()))}")
    return found


@law("but for the parts in front, names, order and tensors of state and modules stay")
def names_move(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    names = {module.path for module in after.modules if module.type_name == PART}
    were = {module.path for module in before.modules if module.type_name == PART}
    tables = {
        "state": [
            [original(name, of) for name in program.state]
            for program, of in ((before, were), (after, names))
        ],
        "modules": [
            [
                original(module.path, of)
                for module in program.modules
                if module.path not in ("", *of)
            ]
            for program, of in ((before, were), (after, names))
        ],
    }
    found = [
        f"the {what} are others"
        for what, (old, new) in tables.items()
        if list(dict.fromkeys(old)) != list(dict.fromkeys(new))
    ]
    for name, slot in after.state.pairs:
        known = {original(old, were): before.state[old] for old in before.state}.get(
            original(name, names)
        )
        if known is not slot:
            found.append(f"{name} is another tensor")
    return found


@law(
    "join restores the program, with one read of state at each place and its nodes in a legal order"
)
def joins(transform: Transform, case: Case) -> list[str]:
    left, right = _given_back(case.program, join(transform(case.program)))
    found = [] if left == right else [f"joined, it is another program:\n{left}"]
    flat = inline(join(transform(case.program)))
    place = {node.name: number for number, node in enumerate(flat.main.nodes)}
    nodes = right.main.nodes
    for number, earlier in enumerate(dependencies(right, right.main)):
        found += [
            f"{nodes[number].name} comes before {nodes[other].name}, which it depends on"
            for other in earlier
            if place.get(nodes[number].name, 0) < place.get(nodes[other].name, 0)
        ]
    return found


def _given_back(program: Program, back: Program) -> tuple[Program, Program]:
    # Both without calls, the nodes of the one in the order of the other.
    left, right = inline(back), one_read_each(inline(program))
    return left.with_main(
        evolve(left.main, nodes=in_order_of(left.main.nodes, right.main.nodes))
    ), right


@law("no name contains a part")
def no_parts(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    names = {module.path for module in case.program.modules if module.type_name == PART}
    paths = [
        *(module.path for module in result.modules),
        *result.state,
        *(frame.path for frame in result.call_signatures),
    ]
    paths += [frame.path for node in result.main.nodes for frame in node.stack]
    return [f"{path} is in a part still" for path in paths if path.partition(".")[0] in names]


def split_and_joined(case: Case) -> tuple[Program, Program]:
    """Return the program split and joined, in the order of the original, and the original; both without calls."""
    tags, tag_of = legal_tags(case.program, seed=case.seed)
    return _given_back(case.program, join(split_by_tags(case.program, tags, tag_of=tag_of)))


def split_again(case: Case) -> tuple[Program, Program]:
    """Return a split program joined and split by the tags that it was split by, and the split program."""
    split = split_somewhere(case.program)
    return split_somewhere(join(split)), split


def has_one_read_each(program: Program) -> bool:
    """Return whether no call of a program reads a slot twice: a split would lose the second name."""
    return one_read_each(flat := inline(program)).main == flat.main


def as_one(case: Case) -> tuple[Program, Program]:
    """Return a program without calls that has the nodes of the parts, split by one tag, and the program without calls."""
    flat = one_read_each(inline(case.program))
    split = split_by_tags(flat, ("all",), tag_of=lambda _: "all")
    nodes = tuple([node for part in parts(split) for node in split.graphs[part.graph].nodes])
    return flat.with_main(evolve(flat.main, nodes=nodes)), flat


SIZE = "aten.sym_size.int"


def _home(program: Program) -> dict[str, int]:
    # The number of the part that gives a value of the root; -1 for its inputs.
    found = {formal.name: -1 for formal in program.main.inputs}
    count = -1
    for node in program.main.nodes:
        if type(node.do) is Call:
            count += 1
            found[node.name] = count
        else:
            found[node.name] = found[node.refs()[0]]
    return found


@law("every part accepts only results of the part before it, and the last returns the results")
def straight(transform: Transform, case: Case) -> list[str]:
    result = transform(case.program)
    home = _home(result)
    calls = parts(result)
    found = [
        f"{part.name} takes {name} of part {home[name]}"
        for number, part in enumerate(calls)
        for name in part.node.refs()
        if home[name] != number - 1
    ]
    pairs = zip(result.main.output, result.signature.outputs, strict=True)
    given = [arg.name for arg, spec in pairs if type(spec) in GIVEN and type(arg) is Ref]
    return found + [
        f"{name} of part {home[name]} is returned" for name in given if home[name] != len(calls) - 1
    ]


@law("every part has the nodes that it had")
def nodes_stay(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    pairs = zip(parts(before), parts(after), strict=True)
    others = [
        old.name
        for old, new in pairs
        if before.graphs[old.graph].nodes != after.graphs[new.graph].nodes
    ]
    return [f"{name} computes something else" for name in others]


def _operators(program: Program, part: str) -> Counter[str]:
    graph = program.graphs[next(one.graph for one in parts(program) if one.name == part)]
    return Counter(str((node.do, node.stack)) for node in graph.nodes if not _is_number(node))


def _is_number(node: Node) -> bool:
    return bool(is_number(node.meta)) or (type(node.do) is Op and node.do.name == SIZE)


@law("every part computes the tensors that it computed", aim=split_across_sizes)
def tensors_stay(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    names = [part.name for part in parts(before)]
    return [
        f"{name} computes other tensors"
        for name in names
        if _operators(before, name) != _operators(after, name)
    ]


def _numbers_may_stay(transform: Transform, case: Case) -> bool:
    effects = [
        node.do.effects for _, node in transform(case.program).nodes() if type(node.do) is Op
    ]
    is_plain = not any(one.writes or one.scope or one.unknown for one in effects)
    return is_plain and bool(_numbers_that_cross(case.program))


@law(
    "where nothing is written and no region is open, no number crosses between parts",
    where=_numbers_may_stay,
    aim=split_across_sizes,
)
def no_number_crosses(transform: Transform, case: Case) -> list[str]:
    return _numbers_that_cross(transform(case.program))


def _numbers_that_cross(program: Program) -> list[str]:
    used = {name for part in parts(program) for name in part.node.refs()}
    makers = {part.node.name: program.graphs[part.graph] for part in parts(program)}
    found: list[str] = []
    for node in program.main.nodes:
        graph = makers[node.name if type(node.do) is Call else node.refs()[0]]
        output = graph.output[node.args[1]] if type(node.do) is Op else graph.output
        made = graph.by_name.get(output.name) if type(output) is Ref else None
        if node.name in used and made is not None and _is_number(made):
            found.append(f"{node.name} is a number, and crosses")
    return found


def in_order_of(nodes: Sequence[Node], wanted: Sequence[Node]) -> tuple[Node, ...]:
    """Return nodes in the order that others of the same names have; those that have no such name come last."""
    rank = {node.name: number for number, node in enumerate(wanted)}
    return tuple(sorted(nodes, key=lambda node: rank.get(node.name, len(rank))))
