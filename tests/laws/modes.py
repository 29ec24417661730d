"""Laws of regions and bodies: what runs in which gradient mode and under which autocast, told by running through the program.

Few drawn programs have bodies, and an aim makes more of them; ``regions_and_back`` puts them between markers and makes bodies
of them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from attrs import evolve

from purefx.ir.analysis.digest import alpha_equal
from purefx.ir.arguments import Arg, Ref
from purefx.ir.graph import Node, Op
from purefx.ir.program import Program
from purefx.laws.law import Case, Transform
from purefx.transforms.modes import bodies_to_regions, regions_to_bodies
from purefx.transforms.modes.modes import Modes
from purefx.transforms.transformation import Transformation
from tests.laws.aimed import law
from tests.laws.aims import with_wrappers

SET_GRAD = "torch._C._set_grad_enabled"
ENTER = "torch.amp.autocast_mode._enter_autocast"
EXIT = "torch.amp.autocast_mode._exit_autocast"
WITH_GRAD = "higher_order.wrap_with_set_grad_enabled"
WITH_AUTOCAST = "higher_order.wrap_with_autocast"
GETITEM = "operator.getitem"

Step = tuple[str, bool, tuple[object, ...]]
"""An operator, the gradient mode that it runs in, and the casts around it, outermost first."""


def _regions_and_back(program: Program) -> Program:
    result = regions_to_bodies.apply(bodies_to_regions.apply(program))
    if result == program:
        return program
    same = [name for name, graph in result.graphs.items() if program.graphs.get(name) == graph]
    return result.with_graphs({name: program.graphs[name] for name in same})


regions_and_back: Transformation = evolve(
    regions_to_bodies,
    apply=_regions_and_back,
    forgets=regions_to_bodies.forgets | bodies_to_regions.forgets,
)
"""``regions_to_bodies`` after ``bodies_to_regions``."""


@law(
    "every operator runs in the gradient mode and under the autocast that it ran in, as often, in the same order",
    aim=with_wrappers,
)
def modes_stay(transform: Transform, case: Case) -> list[str]:
    """Say how what runs differs."""
    before, after = _run(case.program), _run(transform(case.program))
    return [
        f"{one} became {other}" for one, other in zip(before, after, strict=False) if one != other
    ] + ([f"{len(before)} operators became {len(after)}"] if len(before) != len(after) else [])


@law(
    "no region is left between markers, of those that `bodies_to_regions` writes", aim=with_wrappers
)
def no_markers(transform: Transform, case: Case) -> list[str]:
    """Say which markers are left."""
    return [
        f"{node.name} is left"
        for _, node in transform(case.program).nodes()
        if _named(node) in (SET_GRAD, ENTER, EXIT)
    ]


def _one_mode(transform: Transform, case: Case) -> bool:
    # Of a body that callers in several modes share, operators stay: such programs are left out.
    program, found = case.program, {True: set[str](), False: set[str]()}
    todo = [(program.root, False)]
    while todo:
        name, is_inside = todo.pop()
        if name not in found[is_inside]:
            found[is_inside].add(name)
            for node in program.graphs[name].callers:
                inner = is_inside or _named(node) in (WITH_GRAD, WITH_AUTOCAST)
                todo += [(body, inner) for body in node.callees]
    return found[True].isdisjoint(found[False])


@law(
    "no operator is left that runs a body in another gradient mode or under autocast",
    where=_one_mode,
    aim=with_wrappers,
)
def no_wrappers(transform: Transform, case: Case) -> list[str]:
    """Say which operators are left."""
    return [
        f"{node.name} is left"
        for _, node in transform(case.program).nodes()
        if _named(node) in (WITH_GRAD, WITH_AUTOCAST)
    ]


def _markers_count(transform: Transform, case: Case) -> bool:
    flat = bodies_to_regions(case.program)
    modes = Modes(flat, grad=True)
    for name in flat.order:
        markers = [_named(node) == SET_GRAD for node in flat.graphs[name].nodes]
        pairs = zip(flat.graphs[name].nodes, modes.before(name), strict=False)
        if any(
            marks and node.args[0] is mode
            for marks, (node, mode) in zip(markers, pairs, strict=True)
        ):
            return False
        if any(first and second for first, second in pairwise(markers)):
            return False
    return True


@law(
    "where every marker changes the mode of an operator, what it was made of comes back with `bodies_to_regions`",
    where=_markers_count,
    aim=with_wrappers,
)
def markers_come_back(transform: Transform, case: Case) -> list[str]:
    """Say what differs."""
    flat = bodies_to_regions(case.program)
    back = bodies_to_regions(transform(flat))
    return [] if alpha_equal(back, flat) else [f"{back} is not {flat}"]


def _named(node: Node) -> str:
    return node.do.name if type(node.do) is Op else ""


def _run(program: Program) -> list[Step]:
    # The operators in the order in which they run, bodies each time that they are called.
    found: list[Step] = []
    grad, casts = True, dict[str, object]()
    todo: list[tuple[Iterator[Node], bool | None, str]] = [(iter(program.main.nodes), None, "")]
    while todo:
        nodes, restored, cast = todo[-1]
        node = next(nodes, None)
        if node is None:
            todo.pop()
            grad = grad if restored is None else restored
            casts.pop(cast, None)
            continue
        name, inner = _named(node), node.callees
        if name == SET_GRAD:
            grad = node.args[0] is True
        elif name == ENTER:
            casts[f"{len(todo)} {node.name}"] = node.args
        elif name == EXIT:
            casts.pop(f"{len(todo)} {_name_of(node.args[0])}")
        elif name not in ("", GETITEM, WITH_GRAD, WITH_AUTOCAST):
            found.append((name, grad, tuple(casts.values())))
        key = f"{len(todo)} {node.name}" if name == WITH_AUTOCAST else ""
        if key:
            casts[key] = node.args[:4]
        todo += [
            (iter(program.graphs[body].nodes), grad if name == WITH_GRAD else None, key)
            for body in reversed(inner)
        ]
        grad = node.args[0] is True if name == WITH_GRAD else grad
    return found


def _name_of(arg: Arg) -> str:
    return arg.name if type(arg) is Ref else ""
