"""`replicate`: bodies compute what their callers computed for them, where all calls say the same; and it undoes `hoist`."""

from __future__ import annotations

import pytest
import torch

import purefx as px
from tests.transforms.simplifying import nodes, same_as_eager, sound, text
from tests.transforms.test_hoist import BODIES, KEEP, LEVELS, TWICE, Counters, Stack, X, body, runs

REPLICATE = px.replicate

ADDS = "graph @f(x, k, m) {\ny = aten.add.Tensor(x, m)\nreturn y\n}"

FIRST = "y = call @f(x, k, m) as a"

TWO = ("y = call @f(x, k, m) as a", "z = call @f(y, k, m) as b")

CALLERS = {
    "from what is passed": (("m = aten.exp.default(k)", *TWO), ["y", "z"], ["m", "y"]),
    "from nothing": (("m = aten.arange.default(2)", *TWO), ["y", "z"], ["m", "y"]),
    "a chain": (
        ("n = aten.neg.default(k)", "m = aten.exp.default(n)", *TWO),
        ["y", "z"],
        ["n", "m", "y"],
    ),
    "with a number": (
        ("n = aten.sym_size.int(k, 0)", "m = aten.full.default([n], 2.0)", "z = call @f(x, k, m) as a"), ["z"], ["n", "m", "y"],
    ),
    "one of several results": (
        ("s = aten.split.Tensor(k, 1)", "m = operator.getitem(s, 0)", "z = call @f(x, k, m) as a"), ["z"], ["s", "m", "y"],
    ),
    "computed for each call": (
        ("m = aten.exp.default(k)", "y = call @f(x, k, m) as a", "n = aten.exp.default(y)", "z = call @f(x, y, n) as b"),
        ["y", "z"],
        ["m", "y"],
    ),
    "two operands that one call passes twice": (
        ("m = aten.mul.Tensor(x, k)", "y = call @f(x, k, m) as a", "n = aten.mul.Tensor(y, y)", "z = call @f(y, y, n) as b"),
        ["y", "z"],
        ["m", "y"],
    ),
    "one operand that one call passes twice": (
        ("m = aten.exp.default(k)", "y = call @f(k, k, m) as a", "n = aten.exp.default(x)", "z = call @f(y, x, n) as b"),
        ["y", "z"],
        ["m", "y"],
    ),
    "from what is passed, computed a second time": (
        ("n = aten.neg.default(k)", "o = aten.neg.default(k)", "m = aten.exp.default(o)", "z = call @f(x, n, m) as a"),
        ["n", "o", "z"],
        ["m", "y"],
    ),
    "for other uses too": (
        ("m = aten.exp.default(k)", "y = call @f(x, k, m) as a", "z = aten.mul.Tensor(y, m)"), ["m", "y", "z"], ["m", "y"],
    ),
    "computed otherwise": (
        ("m = aten.exp.default(k)", FIRST, "n = aten.sin.default(k)", "z = call @f(y, k, n) as b"), None, None,
    ),
    "other operands": (
        ("m = aten.exp.default(k)", FIRST, "n = aten.exp.default(x)", "z = call @f(x, k, n) as b"), None, None,
    ),
    "from what is not passed": (
        ("n = aten.mul.Tensor(x, k)", "m = aten.exp.default(n)", "w = aten.add_.Tensor(n, 1)", "z = call @f(n, k, m) as a"),
        None,
        None,
    ),
    "a write to the operand in between": (
        ("m = aten.exp.default(k)", "w = aten.add_.Tensor(k, 1)", "z = call @f(x, k, m) as a"), None, None,
    ),
    "a write to it in between": (
        ("m = aten.exp.default(k)", "w = aten.add_.Tensor(m, 1)", "z = call @f(x, k, m) as a"), None, None,
    ),
    "a draw": (("m = aten.rand_like.default(k)", "z = call @f(x, k, m) as a"), None, None),
    "another region": (
        (
            "g = torch._C._set_grad_enabled(False)", "m = aten.exp.default(k)", "h = torch._C._set_grad_enabled(True)",
            "z = call @f(x, k, m) as a",
        ),
        None,
        None,
    ),
    "what it is given": (("z = call @f(x, k, k) as a",), None, None),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLERS)
def test_what_moves(name: str) -> None:
    lines, left, inside = CALLERS[name]
    root = "\n".join(['graph @""(x, k) {', *lines, "return (z,)", "}"])
    program = text(root + "\n" + ADDS, inputs="x: f32[2]; k: f32[2]")
    result = sound(REPLICATE, program)
    if left is None:
        assert result is program
        return
    assert (nodes(result), nodes(result, "f")) == (left, inside)
    given = [torch.rand(2), torch.rand(2)]
    assert torch.equal(px.lower(result)(*given)[0], px.lower(program)(*given)[0])


@pytest.mark.parametrize(
    "lines",
    [
        ("w = aten.add_.Tensor(m, x)", "y = aten.neg.default(m)", "y"),
        ("y = aten.add.Tensor(x, m)", "v = aten.view.default(m, [2])", "(y, v)"),
    ],
    ids=["writes it", "gives it back"],
)
def test_what_bodies_do_with_it(lines: tuple[str, ...]) -> None:
    single = not lines[-1].startswith("(")
    root = ("m = aten.exp.default(k)", "z = call @f(x, k, m) as a") if single else (
        "m = aten.exp.default(k)", "p = call @f(x, k, m) as a", "z = operator.getitem(p, 0)",
    )  # fmt: skip
    written = "\n".join(
        ['graph @""(x, k) {', *root, "return (z,)", "}", "graph @f(x, k, m) {", *lines[:-1], f"return {lines[-1]}", "}"]
    )
    program = text(written, inputs="x: f32[2]; k: f32[2]")
    assert REPLICATE(program) is program


@pytest.mark.parametrize("name", [name for name, (_, moved) in BODIES.items() if moved])
def test_it_undoes_hoist(name: str) -> None:
    program = text(TWICE + "\n" + body(*BODIES[name][0]), inputs="x: f32[2]; k: f32[2]")
    assert px.alpha_equal(sound(REPLICATE, px.hoist(program)), program)


def test_through_levels_and_back() -> None:
    """Everything that was hoisted is computed where it was; what stood in the middle ends up further in."""
    program = text(LEVELS, inputs="x: f32[2]; k: f32[2]")
    again = sound(REPLICATE, px.hoist(program))
    assert runs(again) == runs(program)
    assert [nodes(again, name) for name in ("", "outer", "inner")] == [["y", "z"], ["n", "y"], ["m", "y"]]
    for limit in range(4):
        assert px.verify(REPLICATE(px.hoist(program), fuel=limit), infer=True) == ()


def test_options() -> None:
    program = px.hoist(text(LEVELS, inputs="x: f32[2]; k: f32[2]"))
    assert [node.name for node in REPLICATE(program, only=["a"]).graphs["outer"].nodes] == ["n", "m", "y"]
    assert REPLICATE(program, at_most=0) is program
    with pytest.raises(px.errors.NamingError, match="matches no module that is called"):
        REPLICATE(program, only="nowhere.*")


def test_state_that_the_body_can_read() -> None:
    """One tensor for all calls; a body of several modules reads it from the root."""
    program = text(
        """
        graph @""(x) {
          w = get w
          m = aten.exp.default(w)
          y = call @f(x, m) as a
          z = call @f(y, m) as b
          return (z,)
        }
        graph @f(x, m) {
          y = aten.add.Tensor(x, m)
          return y
        }
        """,
        "state {\nbuffer w: f32[2]\n}",
    )
    result = sound(REPLICATE, program)
    assert (nodes(result), nodes(result, "f")) == (["y", "z"], ["w", "m", "y"])
    assert result.graphs["f"].nodes[0].do == px.Get("/w")
    assert torch.equal(px.lower(result)(torch.ones(2))[0], px.lower(program)(torch.ones(2))[0])


@pytest.mark.parametrize("module", [Stack, Counters], ids=["masks", "writes"])
def test_modules(module: type[torch.nn.Module]) -> None:
    same_as_eager(module(), (X, KEEP), REPLICATE, stages=("tree",))
    same_as_eager(module(), (X, KEEP), px.hoist, REPLICATE, stages=("tree",))


def test_masks_of_layers_come_back() -> None:
    program = px.transform(px.import_ep(torch.export.export(Stack(), (X, KEEP), strict=False)))
    assert runs(REPLICATE(px.hoist(program))) == runs(REPLICATE(program))
