"""What rules and edits say when they are written wrong, word for word; when they are right is tested beside what they do."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.effects.declared import LIBRARIES, ArgAt, Effects
from purefx.ir.operators import op_of
from purefx.transforms.rules.terms import Var
from tests.programs import flat, node

RELU, EXP = op_of(torch.ops.aten.relu.default), op_of(torch.ops.aten.exp.default)


def program() -> px.Program:
    """Return an exponential and what is positive of it."""
    return flat([node("exp", EXP, "x"), node("relu", RELU, "exp")], px.Ref("relu"), "x")


def becomes(replacement: Callable[..., Any], **options: Any) -> Callable[[], object]:
    """Return what applies a rule with this replacement."""
    return lambda: px.rule(lambda x: torch.relu(x), **options).becomes(replacement)(program())


def edited(edit: Callable[[Any], object], path: str = "") -> Callable[[], object]:
    """Return what does something in an edit."""

    def run() -> None:
        with px.editing(program(), path) as made:
            edit(made)

    return run


NO_VARIABLE = "each parameter of a rule is a variable: no defaults, no *args; a variable matches a list as well"

NO_VALUE = "is not a value of the program: write a replacement with the variables that it is given"

SAID: list[tuple[Callable[[], object], str]] = [
    (lambda: px.rule(lambda x: x.shape), "a rule looks for operators, and shape(x) is none: it would match everywhere"),
    (lambda: px.rule(lambda x: x), "a rule looks for operators, and x is none: it would match everywhere"),
    (lambda: px.rule(lambda x: 3), "<lambda> does not use x: nothing would say what that is"),
    (lambda: px.rule(lambda x, y, z: torch.relu(y)), "<lambda> does not use x, z: nothing would say what that is"),
    (
        lambda: px.rule(lambda x: -x if x else x),
        "a rule cannot branch on a value: nothing is computed; look at the values that it matched in `where=`",
    ),
    (lambda: px.rule(lambda *x: x[0]), NO_VARIABLE),
    (lambda: px.rule(lambda x=1: torch.relu(x)), NO_VARIABLE),
    (
        lambda: px.rule(lambda x: list(x.chunk(2))),
        (
            "how many results there are is not known in a rule: write parts[0], parts[1], or a, b = parts; any number of values\n"
            "is a variable of its own: torch.cat([x, *rest])"
        ),
    ),
    (
        lambda: px.rule(lambda x: [[torch.relu(x)]]),
        "a rule looks for a value, or for a tuple of values, and [relu(x)] is none",
    ),
    (
        lambda: px.rule(lambda x: x.relu_()),
        "relu_ writes into its arguments, and a rule looks for values and builds such: compute a new one (x + 1 for x.add_(1), \
torch.where or index_put for x[i] = y), and use that",
    ),
    (
        lambda: px.rule(lambda x: torch.ops.aten.relu.default(x, 3, a=4)),
        "no overload of relu takes (x, 3, a=4):\n  aten::relu(Tensor self) -> Tensor",
    ),
    (
        lambda: px.rule(lambda x: torch.max(x, 0)[-1]),
        "[-1] in a rule is one of several results, by number; write x.select(0, -1) for a part of a tensor",
    ),
    (
        lambda: px.rule(lambda x: px.any_of(torch.relu(x), len)),
        "any_of takes terms, and <built-in function len> is a function: call it with variables",
    ),
    (
        lambda: px.rule(lambda x, y: (torch.relu(x), torch.sin(y))),
        "<lambda> looks for relu(x) and for sin(y), which have no value in common: write two rules",
    ),
    (
        lambda: px.rule(lambda x: (y := torch.relu(x), y)),
        "<lambda> returns one value twice: return it once, and let the replacement give one value for it",
    ),
    (
        lambda: px.rule(lambda x: torch.relu(x))(program()),
        "<lambda> has no replacement: write one as `@<lambda>.becomes`, over `def _(m, x)`",
    ),
    (lambda: px.rule(lambda x: torch.relu(x)).becomes(lambda x: x), "<lambda>.becomes takes (m, x), not (x)"),
    (
        lambda: px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x).becomes(lambda m, x: x),
        "<lambda> has a replacement already: what stands in one place is one thing; write another rule",
    ),
    (
        lambda: px.rule(lambda x: torch.relu(x), example=[torch.ones(2), 3]),
        "<lambda> has 1 variables, and its example 2 values",
    ),
    (becomes(lambda m, x: 1), "node relu: a replacement returns one value that it computes or was given, not 1"),
    (becomes(lambda m, x: Var("q")), f"q {NO_VALUE}"),
    (becomes(lambda m, x: torch.sin(Var("q"))), f"q {NO_VALUE}"),
    (
        becomes(lambda m, x: m.call("rellu", x)),
        "'rellu' is not an operator of aten; did you mean 'relu' or 'rrelu' or 'relu_'?; write torch.ops.<library>.<operator>",
    ),
    (
        becomes(lambda m, x: m.parameter("a.b", torch.ones(1))),
        "'a.b' cannot be the name of state: it is an attribute of a module, one word",
    ),
    (
        becomes(lambda m, x: m.parameter("a", 3)),
        "new state 'a' is a tensor with numbers, not 3; m.tensor(w) is the one that w reads",
    ),
    (
        becomes(lambda m, x: m.buffer("a", None)),
        "new state 'a' is a tensor with numbers, not None; m.tensor(w) is the one that w reads",
    ),
    (becomes(lambda m, x: m.read("zzz")), "there is no state 'zzz' to read"),
    (becomes(lambda m, x: m.drop(x)), "exp reads no state, so there is none to drop"),
    (
        becomes(lambda m, x: torch.rand_like(x)),
        (
            "<lambda> at node relu: what it matched only computes,\nand what stands there instead draws random numbers. "
            "A rule replaces operators by others\nwith the same effects, and none that write. Declare what an operator of a "
            "library does (px.declare), or say\nany_effects=True where the rule is right all the same."
        ),
    ),
    (
        becomes(lambda m, x: m.call(torch.ops.aten.relu, x, 1, 2)),
        "no overload of relu takes (exp, 1, 2):\n  aten::relu(Tensor self) -> Tensor",
    ),
    (becomes(lambda m, x: m["xx"]), "the rule has no variable 'xx'; did you mean 'x'?"),
    (
        becomes(lambda m, x: m.val("rellu")),
        "the rule has no variable 'rellu', and the program no value; did you mean 'relu'?",
    ),
    (
        lambda: px.rule(lambda x: (y := torch.exp(x), torch.relu(y))).becomes(lambda m, x: x)(program()),
        "node relu: a replacement for 2 results returns a tuple of 2 values, not x",
    ),
    (edited(lambda edit: edit["rellu"]), "the root has no value called 'rellu'; did you mean 'relu'?"),
    (
        edited(lambda edit: edit.program),
        "edit.program is there at the end of the block `with px.editing(program) as edit: ...`",
    ),
    (
        edited(lambda edit: edit.replace("relu", 3)),
        "node relu: a replacement returns one value that it computes or was given, not 3",
    ),
    (edited(lambda edit: edit.add(torch.sin(edit["x"]), after="qqq")), "the root has no value called 'qqq'"),
    (edited(lambda edit: None, "lin"), "no module 'lin' is called in this program"),
]


@pytest.mark.parametrize("number", range(len(SAID)))
def test_what_is_said(number: int) -> None:
    wrong, said = SAID[number]
    with pytest.raises((px.errors.PurefxError, AttributeError)) as caught:
        wrong()
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        (Effects(domain=LIBRARIES), "is in order in libraries"),
        (Effects(random=True, domain=LIBRARIES), "draws random numbers, is in order in libraries"),
        (Effects(ordered=True), "is in order"),
        (Effects(unknown=True), "writes"),
        (Effects(completes=(ArgAt(0, "self"),)), "completes"),
    ],
)
def test_effects_that_would_go_are_told(effects: Effects, said: str) -> None:
    op = px.Op("aten.exp.default", effects, target=torch.ops.aten.exp.default)
    given = flat([node("exp", op, "x")], px.Ref("exp"), "x")
    with pytest.raises(px.errors.RuleError) as caught:
        px.rule(lambda x: torch.exp(x)).becomes(lambda m, x: torch.sin(x))(given)
    assert str(caught.value).startswith(
        f"<lambda> at node exp: what it matched {said},\nand what stands there instead only computes. A rule"
    )


def test_rules_without_an_end_are_told() -> None:
    with pytest.raises(px.errors.RuleError) as caught:
        becomes(lambda m, x: torch.sin(torch.relu(x)))()
    relu, sin = "  relu_9 = aten.relu.default({})\n", "    sin_9 = aten.sin.default(relu_9)\n"
    state = f"{relu}  became, by <lambda>,\n  {relu}{sin}"
    assert re.sub(r"\d+", "9", str(caught.value)) == (
        "the rules come to no end in the root: <lambda> matched 9 times, 9 in a row on\nwhat they had made, at last at relu_9.\n"
        f"{state.format('exp', 'exp') * 2}What one of them builds is what "
        "another, or itself, looks for; say in `where=` when it is enough, or once=True\nfor a rule that leaves alone what it "
        "has made."
    )


def test_a_size_that_is_not_proven_is_told() -> None:
    class Relu(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x)

    sizes = ({0: torch.export.Dim("d", min=2, max=64)},)
    dynamic = px.import_ep(torch.export.export(Relu(), (torch.ones(4, 4),), dynamic_shapes=sizes))
    size = dynamic.main.inputs[0].meta["val"].shape[0]
    rule = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.tanh(x) if x.shape[0] == 4 else torch.sin(x))
    with pytest.raises(px.errors.RuleError) as caught:
        rule(dynamic)
    assert str(caught.value).endswith(
        f"whether {size} == 4 is known only when the program runs, and a replacement is written before:\n"
        "look at it in `where=`, which holds only where sizes are proven"
    )
    with pytest.raises(AttributeError) as unknown:
        px.rule(lambda x: torch.relu(x), where=lambda m: m.val("x").is_contiguous()).becomes(lambda m, x: torch.sin(x))(dynamic)
    assert str(unknown.value) == (
        "some sizes of this tensor are known only when the program runs, and 'is_contiguous' may depend on them;\n"
        "what can be asked: shape, size, stride, numel, device, dim, dtype, element_size, fake_device, fake_mode, "
        "is_complex, is_conj, is_floating_point, is_neg, is_sparse, itemsize, layout, names, ndim, requires_grad"
    )


@pytest.mark.parametrize(("questions", "holds"), [(5, True), (8, False)])
def test_a_condition_of_many_questions_counts_as_not_proven(questions: int, holds: bool) -> None:
    """It is true whatever the size is, and asked for each outcome of the comparisons: at most 64 times."""

    class Relu(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(x)

    sizes = ({0: torch.export.Dim("d", min=2, max=64)},)
    dynamic = px.import_ep(torch.export.export(Relu(), (torch.ones(4, 4),), dynamic_shapes=sizes))

    def true(m: px.Match) -> bool:
        (size, _) = m.shape("x") or (0, 0)
        return len([bool(size == number) for number in range(10, 10 + questions)]) == questions

    rule = px.rule(lambda x: torch.relu(x), where=true).becomes(lambda m, x: torch.tanh(x))
    assert (rule(dynamic) is not dynamic) is holds
