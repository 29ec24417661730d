"""Laws of ``to_dtype``, ``to_device`` and ``swap_modules``: there and back, or swapped for its own body, it is the same program.

Single precision fits into double precision, so nothing is lost on the way; ``there_and_back`` is what the laws are asked of.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from attrs import evolve

from purefx.ir.arguments import Arg, Ref
from purefx.ir.calls.call_graph import Instance, instances
from purefx.ir.calls.call_sites import conventions
from purefx.ir.errors import SwapError
from purefx.ir.graph import Call, Get, Graph, Input
from purefx.ir.names import FROM_ROOT, Names, is_below, join
from purefx.ir.own_operators import is_boundary
from purefx.ir.persistent import pmap
from purefx.ir.program import Module, Program
from purefx.ir.signature import (
    LiteralType,
    ObjectType,
    Signature,
    TensorType,
    UserInput,
    UserOutput,
)
from purefx.ir.state import State
from purefx.ir.torch_private import FakeTensor, device_of
from purefx.ir.verify import verify
from purefx.laws.law import Case, Transform
from purefx.laws.values import false_values
from purefx.transforms import Transformation, swap_modules
from purefx.transforms.convert import to_device, to_dtype
from tests.laws.aimed import law
from tests.laws.shared_names import described


def _there_and_back(program: Program) -> Program:
    result = to_dtype.apply(to_dtype.apply(program, torch.float64), torch.float32)
    return program if result == program else result


there_and_back: Transformation = evolve(to_dtype, apply=_there_and_back)
"""``to_dtype`` to double precision and back."""


@law("in double precision every value has its recorded type")
def double_says_what_it_computes(transform: Transform, case: Case) -> list[str]:
    """Say which values are not what is said of them."""
    double = to_dtype(transform(case.program), torch.float64)
    return false_values(double, [[_as_given(leaf, double) for leaf in call] for call in case.calls])


def _as_given(leaf: object, double: Program) -> object:
    takes_double = any(
        isinstance(spec, UserInput)
        and isinstance(spec.type, TensorType)
        and spec.type.dtype is torch.float64
        for spec in double.signature.inputs
    )
    is_single = isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float32
    return leaf.double() if takes_double and is_single else leaf  # type: ignore[union-attr]


# -- devices ---------------------------------------------------------------------------------------------------------------------


def _to_meta_and_back(program: Program) -> Program:
    if any(tensor.is_meta for tensor in _tensors(program)):
        return program
    moved = to_device.apply(program, "meta")
    result = to_device.apply(moved.evolve(state=program.state), {"meta": "cpu"})
    return program if result == program and described(result) == described(program) else result


def _tensors(program: Program) -> list[torch.Tensor]:
    return [slot.value for _, slot in program.state.pairs if isinstance(slot.value, torch.Tensor)]


to_meta_and_back: Transformation = evolve(to_device, apply=_to_meta_and_back)
"""``to_device`` to the meta device and back, with the state that the program had."""


@law("on the meta device everything is there, and every value has its recorded type")
def meta_says_what_it_computes(transform: Transform, case: Case) -> list[str]:
    """Say what is not on the meta device, and what is not what is said of it."""
    program = transform(case.program)
    if verify(program, infer=True):
        return []  # it says something wrong already
    moved = to_device(program, "meta")
    found = [
        f"a tensor of the state is on {tensor.device}"
        for tensor in _tensors(moved)
        if not tensor.is_meta
    ]
    found += [
        f"a value is on {device_of(value)}"
        for value in _values(moved)
        if device_of(value).type != "meta"
    ]
    return [*found, *(str(violation) for violation in verify(moved, infer=True))]


def _values(program: Program) -> list[Any]:
    metas = [meta for name in program.order for meta in program.graphs[name].metas.values()]
    return [meta["val"] for meta in metas if isinstance(meta.get("val"), FakeTensor)]


@law("back from the meta device everything is where it was")
def devices_back(transform: Transform, case: Case) -> list[str]:
    """Say what is not as it was."""
    program = transform(case.program)
    moved = to_device(program, "meta")
    if moved is program:
        return []
    back = to_device(moved.evolve(state=program.state), {"meta": "cpu"})
    found = [] if back == program else ["another program came back"]
    before, after = described(program), described(back)
    return [
        *found,
        *(
            f"{place} was {before[place]} and is {after[place]}"
            for place in before
            if before[place] != after[place]
        ),
    ]


# -- swapping --------------------------------------------------------------------------------------------------------------------


def own_program(program: Program, path: str) -> Program | None:
    """Return the body of a module as a program; None if it is not called in one way, or reaches out of itself."""
    called = {name for name, place in _calls(program) if place == path}
    if len(called) != 1:
        return None
    [name] = called
    body = program.graphs[name]
    if any(frame.path == path for frame in program.call_signatures):
        convention = conventions(program).get(name)
        if convention is None or not convention.is_closed:
            return None
        trees = (convention.signature.in_spec, convention.signature.out_spec)
        return _cut_out(program, path, name, convention.takes, convention.gives, trees)
    takes = tuple([Ref(formal.name) for formal in body.inputs])
    return _cut_out(program, path, name, takes, tuple(map(Ref, body.output_refs())), (None, None))


def _cut_out(
    program: Program,
    path: str,
    name: str,
    takes: tuple[Arg, ...],
    gives: tuple[Arg, ...],
    trees: tuple[Any, Any],
) -> Program | None:
    whole = program.evolve(root=name)
    graphs = {inner: program.graphs[inner] for inner in whole.order}
    body = graphs[name]
    if not _is_closed(graphs) or any(
        type(leaf) is Ref and leaf.name not in _inputs(body) for leaf in takes
    ):
        return None
    names = Names([*_inputs(body), *(node.name for node in body.nodes)])
    inputs: list[Input] = []
    types: list[UserInput] = []
    for leaf in takes:
        met = {formal.name for formal in inputs}
        fresh = type(leaf) is Ref and leaf.name not in met
        inputs.append(Input(leaf.name) if fresh else Input(names.fresh("unused")))
        types.append(UserInput(ObjectType() if type(leaf) is Ref else LiteralType(leaf)))
    graphs[name] = Graph(
        tuple(inputs), tuple([node for node in body.nodes if not is_boundary(node)]), gives
    )
    slots = {
        slot[len(path) + 1 :]: program.state[slot] for slot in program.state if is_below(slot, path)
    }
    inner = program.call_signatures
    return Program(
        pmap(graphs),
        name,
        State(tuple(slots), pmap(slots)),
        Signature(tuple(types), (UserOutput(),) * len(gives), *trees),
        _modules(program, path),
        pmap(
            {
                evolve(frame, path=frame.path[len(path) + 1 :]): inner[frame]
                for frame in inner
                if is_below(frame.path, path)
            }
        ),
    )


def _modules(program: Program, path: str) -> tuple[Module, ...]:
    below = [
        module for module in program.modules if module.path == path or is_below(module.path, path)
    ]
    return tuple([evolve(module, path=module.path[len(path) + 1 :]) for module in below])


def _inputs(graph: Graph) -> set[str]:
    return {formal.name for formal in graph.inputs}


def _is_closed(graphs: dict[str, Graph]) -> bool:
    # Nothing in it counts from the root of the program around.
    for graph in graphs.values():
        for node in graph.nodes:
            do = node.do
            path = do.instance.path if type(do) is Call else do.slot if type(do) is Get else ""
            if path.startswith(FROM_ROOT) or any(
                frame.path.startswith(FROM_ROOT) for frame in node.stack
            ):
                return False
    return True


def _calls(program: Program, graph: str | None = None, path: str = "") -> list[Instance]:
    # Every body that is called below one, the root, with the path of its module, as often as bodies call it.
    callers = [
        (at, node.do)
        for name, at in instances(program, graph, path)
        for node in program.graphs[name].callers
    ]
    return [(do.graph, join(at, do.instance.path)) for at, do in callers if type(do) is Call]


def own_programs(program: Program) -> tuple[dict[str, Program], Program]:
    """Return the outermost modules that can be swapped for their own bodies, each with that, and the program then."""
    found: dict[str, Program] = {}
    for path in sorted(
        {place for _, place in _calls(program)}, key=lambda path: (path.count("."), path)
    ):
        own = (
            own_program(program, path)
            if not any(is_below(path, outer) for outer in found)
            else None
        )
        if own is not None:
            found[path] = own
    whole = _swapped_for(program, found)
    if whole is None:
        found = {
            path: own
            for path, own in found.items()
            if _swapped_for(program, {path: own}) is not None
        }
        whole = _swapped_for(program, found)
    return (found, whole) if whole is not None else ({}, program)


def _swapped_for(program: Program, found: dict[str, Program]) -> Program | None:
    try:
        return swap_modules.apply(program, found, through="argument", signature="flat")
    except SwapError:
        return None


def swapped_for_own_bodies(program: Program) -> Program:
    """Swap modules for their own bodies."""
    return own_programs(program)[1]


swap_own_bodies: Transformation = evolve(swap_modules, apply=swapped_for_own_bodies)
"""``swap_modules`` as a transformation without options: modules are swapped for their own bodies."""


@law("graphs that do not lead to a swapped module stay the same objects")
def others_stay(transform: Transform, case: Case) -> list[str]:
    program, result = case.program, transform(case.program)
    swapped, _ = own_programs(program)
    stays: dict[str, bool] = {}
    for name, path in [(program.root, ""), *_calls(program)]:
        if not any(path == outer or is_below(path, outer) for outer in swapped):
            leads = any(place in swapped for _, place in _calls(program, name, path))
            stays[name] = stays.get(name, False) or not leads
    return [
        f"the graph {name!a} leads to no swapped module in some place, and is another"
        for name, stay in stays.items()
        if stay and result.graphs.get(name) is not program.graphs[name]
    ]


@law("every module is called in as many places as before")
def called_as_often(transform: Transform, case: Case) -> list[str]:
    before, after = (
        Counter(path for _, path in _calls(program))
        for program in (case.program, transform(case.program))
    )
    return [
        f"{path} is called {after[path]} times, it was {count}"
        for path, count in before.items()
        if after[path] != count
    ]


SWAPPED = (others_stay, called_as_often)
