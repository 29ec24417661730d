"""The values: arguments, nodes, graphs and functions of them."""

from __future__ import annotations

import copy
import operator
import warnings
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st

import purefx as px
from purefx.ir import ANYTHING, Body, Effects, Items, Node, Op, Record, Ref, same_arg
from purefx.ir.arguments import Strict, map_refs, refs_in
from purefx.ir.callables import Method
from purefx.ir.effects.registered import effects_of, known_functions, known_method
from purefx.ir.effects.resolved import NodeEffects, node_effects
from purefx.ir.graph import Graph, Input
from purefx.ir.program import Program
from purefx.ir.torch_private import MODES, pytree, storage_key
from tests.models import ADD, MUL, NEG, Shared, Tower, exported, flat

# Programs are values: equality, hashing, immutability, digest.


def _sample() -> px.Program:
    return px.transform(px.import_ep(exported(Shared(), torch.ones(3, 4))))


def test_meta_is_not_compared() -> None:
    """Two nodes that differ in meta alone are equal and hash alike."""
    plain, noted = (
        px.Node("y", NEG, (px.Ref("x"),)),
        px.Node("y", NEG, (px.Ref("x"),), meta={"note": 1}),
    )
    assert plain == noted
    assert hash(plain) == hash(noted)


@pytest.mark.parametrize(
    "other",
    [
        px.Node("z", NEG, (px.Ref("x"), 1)), px.Node("y", ADD, (px.Ref("x"), 1)), px.Node("y", NEG, (px.Ref("x"), True)),
        px.Node("y", NEG, (px.Ref("x"), 1), (("k", 1),)), px.Node("y", NEG, (px.Ref("x"), 1), stack=(px.Frame("a"),)),
    ],
)  # fmt: skip
def test_every_field_is_compared(other: px.Node) -> None:
    """A node differs from one with another name, op, argument, keyword or stack."""
    assert px.Node("y", NEG, (px.Ref("x"), 1)) != other


def test_frozen_all_the_way_down() -> None:
    """No public attribute of anything that a program reaches can be set, and no container in it can be changed."""
    program = _sample()
    todo: list[Any] = [program]
    seen: set[int] = set()
    checked = 0
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        assert not isinstance(value, list | dict | set | bytearray), f"{value!r} can be changed"
        if attrs.has(type(value)):
            for field in attrs.fields(type(value)):
                with pytest.raises(attrs.exceptions.FrozenInstanceError):
                    setattr(value, field.name, None)
                if field.name not in ("value", "target", "in_spec", "out_spec", "meta"):
                    todo.append(getattr(value, field.name))
                checked += 1
        elif isinstance(value, tuple | frozenset):
            todo.extend(value)
        elif isinstance(value, px.ir.PMap):
            todo.extend(value[key] for key in value)
    assert checked > 500


def test_meta_can_not_be_changed() -> None:
    """Meta is a snapshot: neither its holder nor the exporter's graph can change it."""
    ep = exported(Tower(1), torch.ones(2, 4))
    fx_node = next(node for node in ep.graph.nodes if node.op == "call_function")
    fx_node.meta["custom"] = {"tags": ["a"]}
    node = px.import_ep(ep).main.nodes[0]
    fx_node.meta["custom"]["tags"].append("b")
    fx_node.meta["more"] = 1
    assert node.meta["custom"]["tags"] == ("a",)
    assert "more" not in node.meta
    with pytest.raises(TypeError):
        node.meta["custom"] = 1  # type: ignore[index]


def test_digest_ignores_names_and_sees_everything_else() -> None:
    """Renaming keeps the digest; swapping operands, operators, literals, state or outputs changes it."""
    a = flat(
        [px.Node("a", ADD, (px.Ref("x"), px.Ref("y"))), px.Node("b", MUL, (px.Ref("a"), 2))],
        px.Ref("b"),
        "x",
        "y",
    )
    same = flat(
        [px.Node("p", ADD, (px.Ref("u"), px.Ref("v"))), px.Node("q", MUL, (px.Ref("p"), 2))],
        px.Ref("q"),
        "u",
        "v",
    )
    same = same.evolve(signature=a.signature)
    assert px.digest(a) == px.digest(same)
    nodes = a.main.nodes
    others = [
        (px.Node("a", ADD, (px.Ref("y"), px.Ref("x"))), nodes[1]),
        (px.Node("a", MUL, (px.Ref("x"), px.Ref("y"))), nodes[1]),
        (nodes[0], px.Node("b", MUL, (px.Ref("a"), 2.0))),
        (nodes[0], px.Node("b", MUL, (px.Ref("a"), True))),
        (nodes[0], px.Node("b", MUL, (2, px.Ref("a")))),
        (nodes[0], attrs.evolve(nodes[1], stack=(px.Frame("m"),))),
    ]
    digests = {px.digest(a.with_main(attrs.evolve(a.main, nodes=other))) for other in others}
    digests.add(px.digest(a.with_main(attrs.evolve(a.main, output=(px.Ref("a"),)))))
    assert len(digests) == 7
    assert px.digest(a) not in digests


# Equality of arguments: strict on types, signs of zero and containers, reflexive on NaN, consistent with hashing.


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.complex_numbers(), st.text(max_size=2),
    st.builds(Ref, st.sampled_from("xyz")), st.builds(Body, st.sampled_from("ab")),
    st.sampled_from([torch.float32, torch.int64, torch.device("cpu"), torch.device("meta"), torch.strided, ...]),
)  # fmt: skip


def _containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.lists(inner, max_size=3).map(Items),
        st.lists(st.tuples(st.text(max_size=1), inner), max_size=2).map(
            lambda pairs: Record(tuple(pairs))
        ),
        st.tuples(inner, inner, inner).map(lambda parts: slice(*parts)),
    )


ARGS = st.recursive(LEAVES, _containers, max_leaves=6)


@given(ARGS)
def test_equal_to_a_rebuilt_copy(arg: Any) -> None:
    """Every argument, NaN included, equals a copy of itself, and they hash alike."""
    other = copy.deepcopy(arg)
    assert same_arg(arg, other)
    assert hash(Strict(arg)) == hash(Strict(other))


@given(ARGS, ARGS)
def test_symmetric_and_hash_follows(left: Any, right: Any) -> None:
    """Equality is symmetric, and equal arguments hash alike."""
    assert same_arg(left, right) == same_arg(right, left)
    if same_arg(left, right):
        assert hash(Strict(left)) == hash(Strict(right))


def test_literals_that_python_takes_for_equal_differ() -> None:
    """1, True, 1.0 and 1+0j; 0.0 and -0.0; a tuple and a list; a name and a string."""
    values = [
        1,
        True,
        1.0,
        1 + 0j,
        "1",
        0.0,
        -0.0,
        (1,),
        Items([1]),
        Ref("x"),
        "x",
        Body("x"),
        None,
        (),
        Items(),
        slice(1, None),
    ]
    for index, left in enumerate(values):
        for other, right in enumerate(values):
            assert same_arg(left, right) == (index == other), (left, right)


def test_symbolic_sizes_are_never_compared() -> None:
    """Comparing a SymInt installs a guard; ours equals only itself and asks it nothing."""

    class Size(torch.SymInt):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("was compared")

        __hash__ = None  # type: ignore[assignment]

    a, b = Size(None), Size(None)
    assert same_arg((a,), (a,))
    assert not same_arg((a,), (b,))
    assert isinstance(hash(Strict((a,))), int)


@given(ARGS)
def test_mapping_references(arg: Any) -> None:
    """Renaming nothing gives the same object; renaming reaches every reference and nothing else."""
    assert map_refs(arg, lambda ref: ref) is arg
    renamed = map_refs(arg, lambda ref: Ref(ref.name + "_") if type(ref) is Ref else ref)
    assert refs_in((renamed,)) == [name + "_" for name in refs_in((arg,))]


# Plain functions and methods do no more than ``effects/functions.py`` says: all public ones are run and watched.


FUNCTIONS = {
    name: function
    for name, function in known_functions().items()
    if function not in MODES and "._" not in name
}
METHODS = {
    f"tensor.{name}": method
    for name in dir(torch.Tensor)
    if not name.startswith("_") and (method := known_method(name))
}

EXTRA: tuple[tuple[Any, ...], ...] = ((), (Ref("y"),), (0,), ((3, 4),), (0, 1))


def declared(target: Callable[..., Any], args: tuple[Any, ...]) -> NodeEffects:
    """Return what is said to happen in a call."""
    graph = Graph(
        (Input("x"), Input("y"), Input("z")),
        (Node("n", Op("n", effects_of(target), target), args),),
        Ref("n"),
    )
    return node_effects(Program.of({"": graph}), graph)[0]


def watched(target: Callable[..., Any], args: tuple[Any, ...]) -> list[str] | None:
    """Return what a call does beyond what is declared; None where it refuses the arguments."""
    values = {
        name: torch.linspace(0.1, 0.9, 12).reshape(3, 4).mul(number + 1)
        for number, name in enumerate("xyz")
    }
    before = {name: value.clone() for name, value in values.items()}
    torch.manual_seed(3)
    state = torch.get_rng_state()
    try:
        result = target(*[values[arg.name] if isinstance(arg, Ref) else arg for arg in args])
    except (
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
        NotImplementedError,
        AttributeError,
        ArithmeticError,
        AssertionError,
    ):
        return None
    said = declared(target, args)
    if said.scope != (0, 0):
        return []
    wrong: list[str] = []
    if not said.random and not torch.equal(state, torch.get_rng_state()):
        wrong.append("draws")
    for name, value in values.items():
        if name not in said.writes and (
            value.shape != before[name].shape or not torch.equal(value, before[name])
        ):
            wrong.append(f"writes {name}")
    memory = {storage_key(value): name for name, value in values.items()}
    for leaf in pytree.tree_leaves(result):
        if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided and leaf.numel():
            name = memory.get(storage_key(leaf))
            if name is not None and name not in said.aliases:
                wrong.append(f"gives {name}")
    return wrong


def test_no_function_does_more_than_is_declared() -> None:
    """Every public function and method whose effects are known, with five sorts of arguments."""
    wrong: list[str] = []
    ran = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, target in {**FUNCTIONS, **METHODS}.items():
            outcomes = [watched(target, (Ref("x"), *extra)) for extra in EXTRA]
            ran += any(outcome is not None for outcome in outcomes)
            wrong += [
                f"{name} {what}"
                for what in dict.fromkeys(what for outcome in outcomes for what in outcome or ())
            ]
    assert not wrong, "\n".join(wrong)
    assert ran > 500


@pytest.mark.parametrize(
    ("target", "args", "kwargs", "expected"),
    [
        (F.relu, (Ref("x"),), (), ()),
        (F.relu, (Ref("x"),), (("inplace", True),), ("x",)),
        (F.relu, (), (("input", Ref("x")), ("inplace", True)), ("x",)),
        (torch.add, (Ref("x"), Ref("y")), (("out", Ref("z")),), ("z",)),
        (torch.relu_, (), (("input", Ref("x")),), ("x",)),
        (Method("add_", of_tensor=True), (Ref("x"), Ref("y")), (), ("x",)),
        (Method("add_"), (Ref("x"), Ref("y")), (), ("x", "y")),
        (Method("view"), (Ref("x"), 3), (), ("x",)),
        (print, (Ref("x"),), (), ("x",)),
        (operator.setitem, (Ref("x"), 0, Ref("y")), (), ("x", "y")),
    ],
)
def test_what_is_written(target: Any, args: Any, kwargs: Any, expected: tuple[str, ...]) -> None:
    """By position and by either name, and everything where nothing is known."""
    graph = Graph(
        (Input("x"), Input("y"), Input("z")),
        (Node("n", Op("n", effects_of(target), target), args, kwargs),),
        Ref("n"),
    )
    assert tuple(dict.fromkeys(node_effects(Program.of({"": graph}), graph)[0].writes)) == expected


def test_draws_and_modes() -> None:
    """A dropout that does not train draws nothing; what switches gradients off is a boundary."""
    assert declared(F.dropout, (Ref("x"), 0.5)).random
    assert not declared(F.dropout, (Ref("x"), 0.5, False)).random
    assert effects_of(torch._C._set_grad_enabled).scope == 1
    assert effects_of(len) is ANYTHING
    assert isinstance(
        effects_of([].append), Effects
    )  # a target that cannot be hashed by what it holds
