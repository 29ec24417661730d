"""``observe``: what forward hooks of eager see, beside a result that stays what it was."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch
from hypothesis import Phase, assume, given, reject, settings
from torch import nn
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.state import same_contents
from purefx.laws.strategies import ModuleTree, module_trees
from purefx.laws.tiers import Tier, drawn_cases, share
from tests.laws.test_modules import RANDOM
from tests.models import Counter, Shared, exported, flat, parent

X = torch.linspace(-2, 2, 12).reshape(3, 4)


def hooked(module: nn.Module) -> tuple[nn.Module, dict[str, Any]]:
    """Return a copy that records what each call of a module gives, copied when it does; calls are numbered as they begin."""
    module = copy.deepcopy(module)
    seen, times, calls = dict[str, Any](), dict[str, int](), list[str]()

    def enter(path: str) -> None:
        number = times[path] = times.get(path, -1) + 1
        calls.append(f"{path}@{number}" if number else path)

    def leave(of: nn.Module, args: Any, result: Any) -> None:
        call = calls.pop()
        seen[call] = pytree.tree_map_only(torch.Tensor, torch.clone, result)
        left = args, [*of.parameters(), *of.buffers()]
        seen[what_is_left_by(call)] = pytree.tree_map_only(torch.Tensor, torch.clone, left)

    for path, each in module.named_modules():
        each.register_forward_pre_hook(lambda *_, path=path: enter(path))
        each.register_forward_hook(leave)
    module.register_forward_pre_hook(lambda *_: times.clear())
    return module, seen


def what_is_left_by(call: str) -> str:
    """Return the name under which the arguments and the state of a call are recorded, as the call leaves them."""
    return f"left by {call}"


def agree(
    module: nn.Module,
    paths: str | list[str],
    *args: Any,
    preserve: tuple[str, ...] = (),
    **options: Any,
) -> list[str]:
    """Compare outputs, state and what is observed with hooks, flat and as a tree, over three calls; return what is observed."""
    ep = torch.export.export(
        copy.deepcopy(module), args, preserve_module_call_signature=preserve, **options
    )
    names: list[list[str]] = []
    flat = [px.import_ep(each) for each in ([ep] if preserve else [ep, ep.run_decompositions({})])]
    for program in (*flat, *map(px.transform, flat)):
        before = program.text()
        result = px.observe(program, paths)
        assert program.text() == before
        assert px.verify(result, infer=True) == ()
        lowered = px.lower(result)
        eager, seen = hooked(module)
        for factor in (1, -1, 2):
            given = [arg * factor for arg in args]
            mine, found = lowered(*copy.deepcopy(given))
            theirs = eager(*copy.deepcopy(given))
            for value, other in [
                (mine, theirs),
                *[(value, seen[path]) for path, value in found.items()],
            ]:
                pairs = zip(pytree.tree_leaves(value), pytree.tree_leaves(other), strict=True)
                assert all(
                    torch.equal(*pair) if isinstance(pair[1], torch.Tensor) else pair[0] is pair[1]
                    for pair in pairs
                )
            names.append(list(found))
        mine, theirs = lowered.state_dict(), eager.state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert all(each == names[0] for each in names)
    return names[0]


class Block(parent(up=lambda: nn.Linear(4, 8), act=nn.GELU, down=lambda: nn.Linear(8, 4))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(self.act(self.up(x)))


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin(), x.cos()


class Several(parent(pair=Pair, block=Block, rest=lambda: nn.Sequential(Block(), Block()))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = self.pair(x)
        return self.rest(self.block(self.block(a) * b))


class Twice(parent(norm=lambda: nn.BatchNorm1d(4), linear=lambda: nn.Linear(4, 4))):
    """Its state has an old value, one in between and a new one."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(self.norm(x)))


class Quiet(
    parent(front=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()), back=lambda: nn.Linear(4, 4))
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            y = self.front(x)
        return self.back(y)


CASES: dict[str, tuple[nn.Module, str | list[str], list[str]]] = {
    "one layer of several": (nn.Sequential(Block(), Block(), Block()), "1.down", ["1.down"]),
    "at two depths": (
        nn.Sequential(Block(), Block()),
        ["0", "0.up", "1.down"],
        ["0", "0.up", "1.down"],
    ),
    "called twice": (Several(), "block", ["block", "block@1"]),
    "two values": (Several(), "pair", ["pair"]),
    "below a shared one": (Several(), "rest.1.act", ["rest.1.act"]),
    "around new state": (nn.Sequential(Twice(), Twice()), "?", ["0", "1"]),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_what_hooks_see(case: str) -> None:
    module, paths, names = CASES[case]
    assert agree(module, paths, X) == names


def test_sizes_may_be_dynamic() -> None:
    rows = torch.export.Dim("rows", min=2, max=9)
    assert agree(nn.Sequential(Block(), Block()), "1", X, dynamic_shapes=({0: rows},)) == ["1"]


class Results(nn.Module):
    """Returns values that its callers do not use, and some that are no tensors."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        z = x * 2
        return {
            "sum": x + y,
            "pair": [z, (x.cos(), None)],
            "same": z,
            "given": y,
            "one": 1,
            "last": y.sin(),
        }


class Within(parent(results=Results)):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.results(x.abs(), x * 3)["last"] + x


class Callers(parent(results=Results, other=Results, within=Within, count=Counter)):
    """Calls one directly, others through a module that is called twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        results = self.results(x, x + 1)
        self.other(x, x - 1)
        return self.within(results["sum"]) + self.within(results["pair"][0]) + self.count(x)


@pytest.mark.parametrize("paths", ["*results", ["within", "*"]])
def test_a_preserved_module_gives_all_that_it_returned(paths: str | list[str]) -> None:
    """Also what nothing uses, constants and None, in the structure that it has: what a hook of eager gets."""
    preserved = ("results", "other", "within.results")
    assert agree(Callers(), paths, X, preserve=preserved)
    program = px.transform(
        px.import_ep(torch.export.export(Callers(), (X,), preserve_module_call_signature=preserved))
    )
    eager, seen = hooked(Callers())
    eager(X)
    for name, value in px.lower(px.observe(program, paths))(X)[1].items():
        if name.rpartition(".")[2] in preserved:
            assert pytree.tree_structure(value) == pytree.tree_structure(seen[name])
            assert pytree.tree_map(type, value) == pytree.tree_map(type, seen[name])


def test_nothing_inside_of_a_preserved_module_can_be_observed() -> None:
    ep = torch.export.export(Several(), (X,), preserve_module_call_signature=("block",))
    with pytest.raises(
        px.errors.UnsupportedProgram, match=r"block.up is inside block, whose call signature"
    ):
        px.observe(px.transform(px.import_ep(ep)), "block.up")


def test_bodies_stay_shared() -> None:
    program = px.transform(px.import_ep(exported(nn.Sequential(Block(), Block(), Block()), X)))
    assert len(px.observe(program, "*.up").order) == len(program.order)


def test_what_is_observed_can_be_observed_again() -> None:
    program = px.transform(px.import_ep(exported(nn.Sequential(Block(), Block()), X)))
    (result, first), second = px.lower(px.observe(px.observe(program, "0.up"), ["0.up", "1.up"]))(X)
    assert torch.equal(result, px.lower(program)(X))
    assert list(first) == ["0.up"]
    assert list(second) == ["0.up", "1.up"]
    assert torch.equal(first["0.up"], second["0.up"])


@pytest.mark.parametrize(
    ("paths", "transform"), [("front.0", px.transform), (["front.*", "back"], px.normalize_stacks)]
)
def test_modules_in_bodies_of_operators_are_refused(paths: Any, transform: Any) -> None:
    """A glob never leaves one of them out silently."""
    module = Quiet()
    program = transform(px.import_ep(exported(module, X)))
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"front.0 runs inside \S+, whose body returns nothing else: observe",
    ):
        px.observe(program, paths)
    eager, seen = hooked(module)
    eager(X)
    assert torch.equal(px.lower(px.observe(program, "front"))(X)[1]["front"], seen["front"])


def test_state_between_two_calls_is_no_value() -> None:
    module = Twice()
    ep = exported(copy.deepcopy(module), X)
    eager, seen = hooked(module)
    eager(X)
    assert torch.equal(
        px.lower(px.observe(px.import_ep(ep), "norm"))(X)[1]["norm@1"], seen["norm@1"]
    )
    flat = px.import_ep(ep.run_decompositions({}))
    for program in (flat, px.transform(flat)):
        with pytest.raises(
            px.errors.UnsupportedProgram,
            match=r"norm writes norm\.\w+, which is written in several calls, so",
        ):
            px.observe(program, "norm")


@pytest.mark.parametrize("stage", ["flat", "deduplicated"])
@pytest.mark.parametrize("tier", ["toy", "aten", "modules"])
def test_drawn_programs_do_what_they_did(tier: Tier, stage: str) -> None:
    """Outputs, mutated inputs, state and effects are as before, and each value is named."""
    observed = 0
    for case in drawn_cases(tier, stage, share(16 if tier == "toy" else 5), 3):
        try:
            result = px.observe(case.program, "*")
        except (px.errors.NamingError, px.errors.UnsupportedProgram):
            continue
        observed += 1
        assert px.verify(result, infer=True) == ()
        before, after = case.meaning(case.program), case.meaning(result)
        assert repr((before.inputs, before.state, before.effects)) == repr(
            (after.inputs, after.state, after.effects)
        )
        for old, new in zip(before.outputs, after.outputs, strict=True):
            assert repr(list(old)) == repr(list(new[: len(old)]))
    assert observed >= 3


@settings(max_examples=share(3), phases=[Phase.generate])
@given(module_trees())
def test_drawn_modules_are_what_hooks_see(tree: ModuleTree) -> None:
    assume(not RANDOM.search(repr(tree)))
    # Of state that is written under no_grad the exporter makes a value; in a cond eager runs one branch.
    assume(not re.search(r"NodeRecipe\(kind=2[01]", repr(tree)))
    names_of = tree.build().named_modules
    assume(
        len(list(names_of())) == len(list(names_of(remove_duplicate=False)))
    )  # hooks count by module, observe by path
    for decomposed in (False, True):
        try:
            flat = px.import_ep(tree.export(decomposed=decomposed))
        except Exception:  # the exporter refuses some in its own ways
            reject()
        try:
            lowered = [px.lower(px.observe(program, "*")) for program in (flat, px.transform(flat))]
        except (
            px.errors.NamingError,
            px.errors.UnsupportedProgram,
        ):  # no module gives anything, or one runs in a region
            reject()
        (eager, seen), names = hooked(tree.build()), list[list[str]]()
        for args, kwargs in tree.calls:
            eager(*copy.deepcopy(args), **copy.deepcopy(kwargs))
            for module in lowered:
                found = module(*copy.deepcopy(args), **copy.deepcopy(kwargs))[1]
                names.append(list(found))
                for path, value in found.items():
                    # run_decompositions drops calls that nothing uses.
                    module_path = path.partition("@")[0]
                    of_module = [call for call in seen if call.partition("@")[0] == module_path]
                    of_call = of_module if decomposed else [path]
                    # The module may write its state, and an operator of it return an argument: nothing in a trace tells
                    # that from a result.
                    leaves = pytree.tree_leaves(
                        [(seen[call], seen[what_is_left_by(call)]) for call in of_call]
                    )
                    theirs = [each for each in leaves if isinstance(each, torch.Tensor)]
                    for each in pytree.tree_leaves(value):
                        assert any(same_contents(each, other) for other in theirs), path
        assert all(sorted(each) == sorted(names[0]) for each in names), names[:2]


@pytest.mark.parametrize(
    ("paths", "error", "words"),
    [
        ("nowhere", px.errors.NamingError, "observe: no called module matches 'nowhere'"),
        (["items.0", "1.upp"], px.errors.NamingError, "observe: no called module matches '1.upp'"),
        *[
            (paths, TypeError, "observe takes globs of module paths")
            for paths in ([1], None, {"0": 1}, 3)
        ],
    ],
)
def test_wrong_use(paths: Any, error: type[Exception], words: str) -> None:
    program = px.transform(px.import_ep(exported(Shared(), X)))
    with pytest.raises(error, match=words):
        px.observe(program, paths)
    split = px.split_by_tags(program, ("a",), tag_of=lambda _: "a")
    with pytest.raises(px.errors.UnsupportedProgram, match="does not accept a split program"):
        px.observe(split, "*")
    frames = {"y": px.ir.Frame("m"), "z": px.ir.Frame("m", 1), "w": px.ir.Frame("m@1")}
    nodes = [
        px.Node(name, px.Op("toy.neg"), (px.Ref("x"),), stack=(frame,))
        for name, frame in frames.items()
    ]
    with pytest.raises(px.errors.UnsupportedProgram, match="both named m@1"):
        px.observe(flat(nodes, tuple(map(px.Ref, frames)), "x"), "m*")
