"""Objects of the reader: what a program from outside can call of those that are passed to it, or that pytree types make."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.errors import CallError
from tests.security.test_allowed import crafted, signed

CALLED: list[str] = []


def noted(name: str) -> Callable[..., Any]:
    def method(self: Any, *_: Any) -> Any:
        CALLED.append(name)
        return self

    return method


NAMES = (
    "getitem", "add", "radd", "mul", "mod", "abs", "neg", "index", "float", "int", "bool", "eq", "lt", "round", "iter", "len",
)  # fmt: skip


class Witness:
    """Writes down which of its methods are called."""

    __class_getitem__ = classmethod(lambda cls, _: CALLED.append("class") or cls)


for name in NAMES:
    setattr(Witness, f"__{name}__", noted(name))


class Sneaky(tuple[Any, ...]):
    """Looks like a container, and is one of its own."""

    __slots__ = ()
    __getitem__ = noted("getitem")


class Box:
    """A type that a library registers."""

    def __init__(self, parts: Any, context: Any) -> None:
        CALLED.append("unflatten")
        if context == "raise":
            raise LookupError("not so")
        self.parts = parts

    __getitem__ = noted("getitem")


class Pair(NamedTuple):
    """A named tuple."""

    x: Any
    y: Any


@pytest.fixture(autouse=True, scope="module")
def _registered() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    pytree.register_pytree_node(
        Box,
        lambda box: (list(box.parts), None),
        lambda parts, context: Box(list(parts), context),
        serialized_type_name="tests.Box",
    )
    yield
    pytree._deregister_pytree_node(Box)


@pytest.fixture(autouse=True)
def _forgotten() -> None:  # pyright: ignore[reportUnusedFunction]
    CALLED.clear()


KINDS = ('object "Witness"', "literal None", "rest", "rest keywords")
BODIES = {
    "item": ' y = operator.getitem(x, "__class__")',
    "number": " y = operator.getitem(x, 0)",
    "add": " y = operator.add(x, 1)",
    "format": ' y = operator.mod("%s", x)',
    "abs": " y = builtins.abs(x)",
    "float": " y = builtins.float(x)",
    "compare": " y = operator.lt(x, 1)",
    "deep": " z = operator.getitem(x, 0)\n y = operator.getitem(z, 0)",
}
RUNS: dict[str, Callable[[px.Program], Any]] = {
    "graph module": px.lower,
    "interpreter": lambda program: px.lower(program, to="interpreter"),
    "transformed": lambda program: px.lower(px.transform(program)),
    "pickled": lambda program: pickle.loads(pickle.dumps(px.lower(program))),
    "unchecked": lambda program: unchecked(px.lower(program)),
}


def unchecked(module: Any) -> Any:
    module.check_input_constraints = False
    return module


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_methods_of_arguments_are_not_called(kind: str, body: str, tmp_path: Path) -> None:
    """As text and as a file, with the object itself and inside containers, through every way of running."""
    text = signed(BODIES[body]).replace("user x: f32[2]", f"user x: {kind}")
    programs = [px.parse(text), px.load(crafted(text, [], tmp_path / "p"))]
    for given in (Witness(), [Witness()], {"__class__": Witness()}, (1, Sneaky((1, 2))), Witness):
        for program in programs:
            for run in RUNS.values():
                with pytest.raises(px.PurefxError, match="accepts only data here"):
                    run(program)(k=given) if kind == "rest keywords" else run(program)(given)
    assert CALLED == []


def test_data_is_taken_and_named_classes_are() -> None:
    text = signed(BODIES["number"]).replace("user x: f32[2]", 'user x: object ""')
    module = px.lower(px.parse(text))
    for given in (
        [1],
        (2, Witness)[:1],
        Pair(3, 4),
        torch.tensor([5]),
        {0: 6},
        torch.ones(2, 2).max(0),
        torch.Size([7]),
    ):
        assert module(given) is not None
    px.lower(px.parse(text, types=[Witness]))(Witness())
    assert CALLED == ["getitem"]


def test_live_programs_call_what_they_call_and_files_of_them_say_so(tmp_path: Path) -> None:
    """A traced module may index any object; its file may index data, or classes that the reader names."""

    class Indexing(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x["a"]

    program = px.import_fx(torch.fx.symbolic_trace(Indexing()))
    px.lower(program)(Witness())
    pickle.loads(pickle.dumps(px.lower(program)))(Witness())
    assert CALLED == ["getitem"] * 2
    px.save(program, tmp_path / "p")
    loaded = px.lower(px.load(tmp_path / "p"))
    assert loaded({"a": 3}) == 3
    with pytest.raises(
        px.errors.InputValueError,
        match=r"got a tests\.security\.test_objects\.Witness; load\(\.\.\., types=\[Witness\]\)",
    ):
        loaded(Witness())
    px.lower(px.load(tmp_path / "p", types=[Witness]))(Witness())
    assert CALLED == ["getitem"] * 3


def boxed(context: str, *, after: str = "") -> str:
    """Return a program that gives back a box, made by the pytree of its result, or by an operator."""
    box = f'custom "{Box.__module__}.{Box.__qualname__}" with {context} (*,)'
    if not after:
        return signed(" y = aten.relu.default(x)").replace("out_spec *", f"out_spec {box}")
    return signed(f" b = purefx.pack([x], tree({box}))\n{after}")


def test_unflatten_functions_run_when_the_program_does_and_not_before(tmp_path: Path) -> None:
    path = crafted(boxed("[1]"), [], tmp_path / "p")
    program, other = px.load(path), px.load(path)
    assert program == other
    assert px.verify(program, infer=True) == ()
    for use in (
        str,
        px.digest,
        px.stats,
        px.transform,
        px.infer,
        px.mermaid,
        lambda given: px.diff(given, other),
    ):
        use(program)
    px.name_inputs(program, ["a"])
    module = px.lower(program)
    assert CALLED == []
    assert type(module(torch.ones(2))) is Box
    assert CALLED == ["unflatten"]


@pytest.mark.parametrize(
    "context", ['op("aten.relu.default")', "x", "@sub", '[1, {"a": op("torch.sym_max")}]']
)
def test_what_unflatten_functions_are_handed_is_data(context: str) -> None:
    """Numbers, texts and containers of them: no function and nothing of the graph."""
    with pytest.raises(px.errors.ParseError, match="context of a pytree type must be data"):
        px.parse(boxed(context))


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_what_an_unflatten_function_raises_is_an_error_of_ours(to: str) -> None:
    with pytest.raises(CallError, match=r"combined as TreeSpec\(Box, .*: LookupError: not so"):
        px.lower(px.parse(boxed('"raise"')), to=to)(torch.ones(2))
    bad = boxed("-3").replace(
        f"{Box.__module__}.{Box.__qualname__}", f"{deque.__module__}.{deque.__qualname__}"
    )
    with pytest.raises(CallError, match=r"combined as TreeSpec\(deque, .*: ValueError"):
        px.lower(px.parse(bad), to=to)(torch.ones(2))


@pytest.mark.parametrize(
    "after",
    [
        ' y = operator.getitem(b, "x")',
        " y = operator.add(b, 1)",
        " z = operator.add([b], [])\n y = operator.getitem(z, 0)",
        " y = aten.relu.default(b)",
        " y = tensor.relu(b)",
        " y = torch.nn.functional.relu(b)",
        " y = higher_order.cond(True, b, b, ())",
    ],
)
def test_what_pack_makes_is_given_to_no_operator(after: str) -> None:
    program = px.parse(boxed("None", after=after))
    assert any(violation.rule in ("packed-values", "operands") for violation in px.verify(program))
    with pytest.raises(px.errors.InvalidProgram):
        px.lower(program)
    assert CALLED == []


def test_what_pack_makes_is_followed_through_calls() -> None:
    text = boxed(
        "None",
        after=" c = call @m(b) as m\n d = operator.getitem(c, 1)\n y = operator.getitem(d, 0)",
    )
    text = (
        text.replace(' "": "M"', ' "": "M"\n m: "M"')[:-1] + "graph @m(a) {\n return (1, a)\n}\n}"
    )
    found = px.verify(px.parse(text))
    assert [(violation.rule, violation.node) for violation in found] == [("packed-values", "y")]
    sliced = px.verify(
        px.parse(text.replace("operator.getitem(c, 1)", "operator.getitem(c, slice(1, 2, None))"))
    )
    assert {violation.rule for violation in sliced} == {"packed-values", "results"}
    fine = text.replace(" y = operator.getitem(d, 0)\n", "").replace("return (y,)", "return (d,)")
    assert px.verify(px.parse(fine)) == ()
