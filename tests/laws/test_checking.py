"""What ``check_transformation`` says: about a mistake in a function, and about a mistake in how it was asked.

Each message is read as a user would read it: it names what is wrong and what to write instead.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.laws import toy
from purefx.laws.asking import LawBroken
from purefx.laws.checking import FewChanges, NothingChecked, WrongQuestion, check_transformation
from purefx.laws.law import GENERIC
from purefx.laws.tiers import drawn_cases
from tests.laws.deep import ask_laws
from tests.models import parent

ONES = torch.ones(2)

MEANING = [law for law in GENERIC if law.name == "meaning"]


def drops_prints_and_writes(program: px.Program) -> px.Program:
    """Drop the last node if nobody uses it, whatever it does."""
    nodes = program.main.nodes
    if not nodes or nodes[-1].name in program.main.output_refs() or type(nodes[-1].do) is not px.Op:
        return program
    if nodes[-1].do.name not in {toy.ADD_.name, "aten.mul_.Tensor", "aten.add_.Tensor"}:
        return program
    return program.with_main(evolve(program.main, nodes=nodes[:-1]))


def test_the_smallest_program_and_what_was_done_to_it() -> None:
    with pytest.raises(LawBroken) as caught:
        check_transformation(drops_prints_and_writes, laws=MEANING, examples=60)
    text = str(caught.value)
    assert text.startswith(
        "drops_prints_and_writes breaks the law 'meaning': the meaning is kept\n"
    )
    assert "- toy0 = toy.add_(" in text.partition("the changes:")[2].partition("on the program")[0]
    program = px.parse(text.partition("on the program\n")[2])
    assert len(program.main.nodes) == 1
    assert px.verify(program) == ()
    assert caught.value.law is MEANING[0]
    assert str(caught.value.case.program) == program.text()
    assert caught.value.__notes__ == [
        "The programs: tier='toy', stage='flat', examples=60, seed=0."
    ]


def writes_into_state(program: px.Program) -> px.Program:
    """Write into every tensor."""
    for _, slot in program.state.pairs:
        with torch.no_grad():
            slot.value.add_(1)
    return program


def assigns_to_nodes(program: px.Program) -> px.Program:
    """Assign to a node."""
    for node in program.main.nodes:
        node.name = "other"  # pyright: ignore[reportAttributeAccessIssue]
    return program


def puts_into_graphs(program: px.Program) -> px.Program:
    """Assign to the table of graphs."""
    program.graphs[""] = program.main
    return program


@pytest.mark.parametrize(
    ("transform", "law", "told"),
    [
        (
            lambda program: None,
            "valid",
            "it returned None; return a program, and the same object when there is nothing to do",
        ),
        (lambda program: program.main, "valid", "it returned a Graph; return a program"),
        (writes_into_state, "pure", "clone a tensor before you write"),
        (assigns_to_nodes, "pure", "make a changed copy, with attrs.evolve"),
        (puts_into_graphs, "pure", "make a changed copy, with attrs.evolve"),
    ],
)
def test_no_program_and_a_changed_input(transform: Any, law: str, told: str) -> None:
    values = [
        slot.value.clone()
        for case in drawn_cases("toy", "flat", 20)
        for _, slot in case.program.state.pairs
    ]
    with pytest.raises(LawBroken, match=told) as caught:
        check_transformation(transform, examples=20)
    assert caught.value.law.name == law
    now = [
        slot.value
        for case in drawn_cases("toy", "flat", 20)
        for _, slot in case.program.state.pairs
    ]
    assert all(torch.equal(before, after) for before, after in zip(values, now, strict=True)), (
        "later tests would see it"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"transform": "outline"}, "a function from programs to programs, not a str"),
        ({"transform": px.Transformation}, "not the class Transformation"),
        (
            {"tier": "tot"},
            "'tot' is not a tier; choose from 'toy', 'aten', 'modules'; did you mean",
        ),
        ({"stage": "sunken"}, "'sunken' is not a stage; .*did you mean"),
        ({"stage": "tree", "tier": "aten"}, "'tree' is not a stage"),
        (
            {"laws": "meaning"},
            r"laws is a list of purefx.laws.law.Law, not 'meaning'; .*law\.name == 'meaning'",
        ),
        ({"laws": ["meaning"]}, "laws is a list"),
        ({"laws": GENERIC[0]}, r"laws is a list"),
        ({"laws": []}, r"laws is a list of purefx.laws.law.Law, not \[\]"),
        ({"laws": None}, "not None"),
        ({"examples": 0}, "a whole number above 0, not 0"),
        (
            {"programs": px.Program.of({})},
            r"programs is a Program; write programs=\[\(program, args\)\]",
        ),
        ({"programs": [nn.ReLU()]}, r"programs\[0\] is a ReLU; write"),
        (
            {"programs": [(nn.ReLU(), ONES)]},
            r"the arguments of programs\[0\] are a Tensor and a dict",
        ),
        ({"programs": [("relu", (ONES,))]}, r"programs\[0\] begins with a str"),
        (
            {"programs": [(nn.ReLU(), (ONES, ONES))]},
            r"programs\[0\] cannot be exported: TypeError: too many",
        ),
        (
            {"programs": [(px.capture(nn.ReLU(), (ONES,)), ())]},
            r"the arguments of programs\[0\] do not fit: missing argument 'input'",
        ),
        (
            {"programs": [(px.capture(nn.Linear(2, 2), (ONES,)), (torch.ones(3),))]},
            r"programs\[0\] cannot be run .*RuntimeError",
        ),
        (
            {"programs": [(px.parse(px.capture(nn.Linear(2, 2), (ONES,)).text()), (ONES,))]},
            r"programs\[0\] has no contents for 'weight', so it cannot be run; parse or load it with state",
        ),
        ({"rtol": -1.0}, "rtol and atol are numbers of at least 0, not -1.0"),
        ({"atol": True}, "rtol and atol are numbers of at least 0, not True"),
    ],
)
def test_a_wrong_question(arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(WrongQuestion, match=told) as caught:
        check_transformation(**{"transform": px.outline, **arguments})
    assert isinstance(caught.value, px.PurefxError | TypeError | ValueError)


def without_relu(program: px.Program) -> px.Program:
    """Drop every relu behind a linear layer."""
    out: dict[str, px.Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        gone = {
            node.name: node.args[0]
            for node in graph.nodes
            if is_op(node, "aten.relu.default")
            and isinstance(node.args[0], px.Ref)
            and is_op(graph.by_name.get(node.args[0].name), "aten.linear.default")
        }
        if gone:
            output = px.Node("", px.Op("none"), (graph.output,)).using(gone).args[0]
            nodes = tuple(node.using(gone) for node in graph.nodes if node.name not in gone)
            out[name] = evolve(graph, nodes=nodes, output=output)
    return program.evolve(graphs=program.graphs.update(out)) if out else program


def is_op(node: object, name: str) -> bool:
    return isinstance(node, px.Node) and isinstance(node.do, px.Op) and node.do.name == name


def test_what_changes_nothing_is_not_checked() -> None:
    told = r"without_relu changed none of 20 programs \(tier='toy', stage='flat'\), .*programs=\[\(program, args\)\].*tier='aten'"
    with pytest.raises(NothingChecked, match=told) as caught:
        check_transformation(without_relu, laws=MEANING, examples=20)
    assert isinstance(caught.value, AssertionError | px.PurefxError)


def test_what_changes_little_is_warned_about() -> None:
    def seldom(program: px.Program) -> px.Program:
        return px.outline(program) if program is few else program

    few = drawn_cases("toy", "flat", 40)[7].program
    with pytest.warns(
        FewChanges, match=r"seldom changed 1 of 40 programs .*so little was tested; pass programs"
    ) as caught:
        report = check_transformation(seldom, laws=MEANING, examples=40)
    assert (report.drawn, report.changed, report.share) == (40, 1, 1 / 40)
    assert {one.filename for one in caught if one.category is FewChanges} == {__file__}
    assert str(report) == "seldom keeps 1 laws: it changed 1 of 40 programs that were drawn"


def test_meta_is_a_change() -> None:
    assert ask_laws(px.infer, laws=MEANING, stage="flat", tier="aten", examples=5).changed == 0
    program = px.capture(nn.Linear(2, 2), (ONES,))
    bare = program.with_main(
        evolve(program.main, nodes=tuple(evolve(node, meta={}) for node in program.main.nodes))
    )
    assert (
        check_transformation(
            px.infer, laws=MEANING, examples=0, programs=[(bare, (ONES,))]
        ).given_changed
        == 1
    )


MODEL = nn.Sequential(nn.Linear(2, 2), nn.ReLU())


@pytest.mark.parametrize(
    "make",
    [
        lambda: MODEL,
        lambda: torch.export.export(MODEL, (ONES,)),
        lambda: px.capture(MODEL, (ONES,)),
    ],
)
def test_programs_of_your_own(make: Any) -> None:
    with torch.no_grad():
        MODEL[0].weight.fill_(-1)
        MODEL[0].bias.fill_(0.25)
    with pytest.raises(LawBroken, match="without_relu breaks the law 'meaning'") as caught:
        check_transformation(without_relu, laws=MEANING, examples=0, programs=[(make(), (ONES,))])
    told = "outputs[0][0]: got float32[2] (-1.75, -1.75), expected float32[2] (0.0, 0.0): 2 of 2 numbers differ, by up to 1.8"
    assert told in str(caught.value), "tensors are told as numbers"
    report = check_transformation(
        px.outline, examples=10, programs=[(make(), (ONES,)), (nn.ReLU(), (ONES,))]
    )
    assert (report.given, report.given_changed, report.drawn) == (2, 1, 10), (
        "there is nothing to outline in a relu"
    )
    assert str(report).endswith("of 10 programs that were drawn and 1 of 2 given")


def test_keywords_state_and_several_calls() -> None:
    class Counts(parent(count=lambda: torch.zeros(2))):
        def forward(self, x: torch.Tensor, *, by: torch.Tensor, plus: torch.Tensor) -> torch.Tensor:
            self.count.add_(by)  # type: ignore[operator]
            return x * self.count - plus  # type: ignore[operator]

    def never_writes(program: px.Program) -> px.Program:
        gone = {
            node.name: node.args[0]
            for node in program.main.nodes
            if is_op(node, "aten.add_.Tensor")
        }
        nodes = tuple(node.using(gone) for node in program.main.nodes if node.name not in gone)
        return program.with_main(evolve(program.main, nodes=nodes)) if gone else program

    model, given = Counts(), (ONES,)
    by = {"plus": ONES, "by": ONES}
    assert (
        check_transformation(px.sink_state, examples=0, programs=[(model, given, by)]).given_changed
        == 1
    )
    with pytest.raises(LawBroken, match=r"outputs\[1\]\[0\]: got .*\nstate"):
        check_transformation(never_writes, laws=MEANING, examples=0, programs=[(model, given, by)])
    assert model.count.tolist() == [0, 0], "copies are run"


def scaled_later(program: px.Program) -> px.Program:
    """Write (x / 3) * y as (x * y) / 3."""
    nodes = {node.name: node for node in program.main.nodes}
    if "mul" not in nodes or "div" not in nodes or nodes["mul"].args[0] != px.Ref("div"):
        return program
    div, mul = nodes["div"], nodes["mul"]
    first, second = (
        evolve(mul, args=(div.args[0], mul.args[1])),
        evolve(div, args=(px.Ref("mul"), 3)),
    )
    return program.with_main(evolve(program.main, nodes=(first, second), output=(px.Ref("div"),)))


def test_a_tolerance() -> None:
    class Scales(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (x / 3) * y

    given = [(Scales(), (torch.linspace(0.1, 7, 40), torch.linspace(3, 11, 40)))]
    with pytest.raises(
        LawBroken, match=r"and 28 more\): \d+ of 40 numbers differ, by up to \d\.?\d*e-0[67]"
    ):
        check_transformation(scaled_later, laws=MEANING, examples=0, programs=given)
    assert (
        check_transformation(
            scaled_later, laws=MEANING, examples=0, programs=given, rtol=1e-6
        ).given_changed
        == 1
    )
    assert (
        check_transformation(
            scaled_later, laws=MEANING, examples=0, programs=given, atol=1e-5
        ).given_changed
        == 1
    )
    with pytest.raises(LawBroken):
        check_transformation(scaled_later, laws=MEANING, examples=0, programs=given, rtol=1e-12)


def test_a_stage_that_a_transformation_does_not_take() -> None:
    told = r"functionalize requires .*\. The programs are of stage='sunk'; pass a stage that it accepts$"
    with pytest.raises(px.errors.PipelineError, match=told):
        check_transformation(px.functionalize, stage="sunk", examples=40)


def test_a_transformation_that_refuses() -> None:
    def refuses_long_ones(program: px.Program) -> px.Program:
        if len(program.main.nodes) > longest:
            raise px.errors.UnsupportedProgram("too long")
        return program

    longest = 60
    assert ask_laws(refuses_long_ones, laws=MEANING, examples=50).changed == 0
    longest = 45
    report = ask_laws(refuses_long_ones, laws=MEANING, examples=50)
    assert (report.drawn + report.refused, report.refused > 0) == (50, True)
    longest = -1
    with pytest.raises(
        WrongQuestion, match=r"refuses_long_ones refuses \d+ of 50 programs as unsupported"
    ):
        check_transformation(refuses_long_ones, examples=50)


def test_an_error_is_told_with_the_program() -> None:
    def fails(program: px.Program) -> px.Program:
        raise RuntimeError("no idea")

    with pytest.raises(
        LawBroken, match=r"RuntimeError: no idea\non the program\nprogram \{"
    ) as caught:
        check_transformation(fails, examples=20)
    assert isinstance(caught.value.__cause__ or caught.value.__context__, Exception | None)


def test_seeds() -> None:
    seen: list[px.Program] = []

    def looks(program: px.Program) -> px.Program:
        seen.append(program)
        return program

    def drawn(**options: Any) -> set[str]:
        seen.clear()
        ask_laws(looks, laws=MEANING, examples=20, **options)
        return {px.digest(program) for program in seen}

    assert drawn() == drawn() == drawn(seed=0)
    assert drawn(seed=1) != drawn()
