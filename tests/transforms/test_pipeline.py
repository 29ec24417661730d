"""Pipelines of transformations, and the small steps: names of inputs and assertions."""

from __future__ import annotations

import functools
import gc
import logging
from collections.abc import Iterator
from typing import Any

import attrs
import pytest
import torch
from torch import nn

import purefx as px
from tests.models import NEG, Aliased, Shared, Tower, exported, flat, parent

# Pipelines: order is checked before anything runs, results of strangers are verified, nothing to do is nothing done.


def test_a_strangers_result_is_verified() -> None:
    """A function that breaks the program is caught at its own step, with all that it broke."""
    program = flat([px.Node("y", NEG, (px.Ref("x"),))], px.Ref("y"), "x")

    def breaks(program: px.Program) -> px.Program:
        return program.with_main(attrs.evolve(program.main, nodes=()))

    with pytest.raises(px.errors.InvalidProgram) as caught:
        px.transform(program, breaks, px.deduplicate)
    assert [violation.rule for violation in caught.value.violations] == ["defined-values"]
    assert caught.value.__notes__ == ["in step 1 of 2, breaks"]
    nameless = functools.partial(breaks)
    with pytest.raises(px.errors.InvalidProgram) as caught:
        px.transform(program, px.deduplicate, nameless)
    assert caught.value.__notes__ == [f"in step 2 of 2, {nameless!r}"]


def test_a_corrupt_program_is_refused_everywhere() -> None:
    """transform and lower list every violation before they do anything; the program is as before."""
    nodes = [
        px.Node("y", NEG, (px.Ref("late"),)),
        px.Node("late", NEG, (px.Ref("nowhere"),)),
        px.Node("y", NEG, (px.Ref("x"),)),
    ]
    program = flat(nodes, px.Ref("y"), "x")
    before = hash(program)
    for door in (px.transform, px.lower):
        with pytest.raises(ValueError, match="breaks 3 invariants") as caught:
            door(program)  # type: ignore[operator]
        assert isinstance(caught.value, px.errors.InvalidProgram)
        assert {violation.rule for violation in caught.value.violations} == {
            "earlier-values",
            "defined-values",
            "unique-names",
        }
    assert hash(program) == before


@pytest.mark.usefixtures("unverified")
def test_errors_are_about_the_imported_program() -> None:
    """Only the result of an imported program is verified; if it is wrong, the places are those of the program itself."""
    ep = exported(Tower(1), torch.ones(1, 4))
    next(node for node in ep.graph.nodes if node.op == "call_function").meta["val"] = {1, 2}
    program = px.import_ep(ep)
    for _ in range(2):
        with pytest.raises(px.errors.InvalidProgram) as caught:
            px.transform(program)
        assert [(violation.rule, violation.graph) for violation in caught.value.violations] == [
            ("meta", "")
        ]


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ([px.rule(lambda x: torch.relu(x))], "a list"),
        ((px.infer,), "a tuple"),
        (3, "an int"),
        (None, "None"),
    ],
)
def test_a_step_is_a_function(step: Any, told: str) -> None:
    """A list of steps, or a value that is none, is said before anything runs."""
    program = px.import_ep(exported(Tower(1), torch.ones(1, 4)))
    with pytest.raises(
        px.errors.PipelineError, match=f"step 2 is {told}, and a step is a function"
    ):
        px.transform(program, px.infer, step)


PROGRAM = flat([px.Node("y", NEG, (px.Ref("x"),))], px.Ref("y"), "x")


def test_a_fact_that_never_held_is_not_invalidated() -> None:
    @px.transformation(forgets=["lean"])
    def fatten(program: px.Program) -> px.Program:
        return program

    @px.transformation(requires=["lean"])
    def race(program: px.Program) -> px.Program:
        return program

    with pytest.raises(px.errors.PipelineError, match="'lean', but no earlier step establishes"):
        px.transform(PROGRAM, fatten, race)


def test_the_collector_runs_in_steps_of_users() -> None:
    thresholds: list[tuple[int, int, int]] = []

    def step(program: px.Program) -> px.Program:
        thresholds.append(gc.get_threshold())
        return program

    assert px.transform(PROGRAM, step) is PROGRAM
    assert thresholds == [gc.get_threshold()]


def is_bad(_: px.Program) -> bool:
    """Judge every program as bad."""
    return True


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            (PROGRAM, px.outline, 3),
            "is a function of a program that returns whether it is wrong, not",
        ),
        ((PROGRAM, [px.outline, 3], is_bad), "step 2 is an int, and a step is a function"),
        ((px.outline, PROGRAM, is_bad), "bisect takes the program first"),
        ((is_bad, px.outline, PROGRAM), "bisect takes the program first"),
    ],
    ids=["no predicate", "no step", "a program second", "a program last"],
)
def test_wrong_arguments_of_bisect_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(px.errors.PurefxError, match=message):
        px.bisect(*arguments)


def test_options_are_bound_into_a_new_value() -> None:
    """bind gives another transformation; the first is as before, and an unknown option is a TypeError."""

    @px.transformation()
    def rename(program: px.Program, *, to: str = "z") -> px.Program:
        node = attrs.evolve(program.main.nodes[0], name=to)
        return program.with_main(attrs.evolve(program.main, nodes=(node,), output=(px.Ref(to),)))

    program = flat([px.Node("y", NEG, (px.Ref("x"),))], px.Ref("y"), "x")
    bound = rename.bind(to="w")
    assert (bound(program).main.nodes[0].name, rename(program).main.nodes[0].name) == ("w", "z")
    assert str(bound(program).trail[-1]) == "rename(to='w')"
    with pytest.raises(TypeError):
        rename(program, too="v")


def test_who_took_a_fact_away_is_named() -> None:
    program = px.import_ep(exported(Tower(1), torch.ones(1, 4)))
    with pytest.raises(
        px.errors.PipelineError,
        match=r"step 3, sink_state, requires .*'flat', but outline before it",
    ):
        px.transform(program, px.outline, px.deduplicate, px.sink_state)


# What inputs are called: as the exporter calls them, as the caller says, and what is refused.


X = torch.tensor([1.0, 2.0])


class Nested(parent(lin=lambda: nn.Linear(2, 2))):
    def forward(
        self,
        batch: dict[str, Any],
        *more: torch.Tensor,
        Scale: torch.Tensor,  # noqa: N803
        mul: torch.Tensor,
    ) -> torch.Tensor:
        return self.lin(batch["a-b"]) * Scale + batch["pair"][1] * mul + more[0] + more[1]


def names(program: px.Program) -> list[str]:
    """Return the names of the inputs of the root."""
    return [formal.name for formal in program.main.inputs]


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_have_their_names(strict: bool) -> None:
    """The exporter's own names are found again from the signature alone, nested arguments included."""
    nested = ({"a-b": X, "pair": (X, X)}, X, X), {"Scale": X, "mul": X}
    ep = torch.export.export(Nested(), *nested, strict=strict)
    program = px.import_ep(ep)
    assert px.name_inputs(program) is program
    other = program.with_main(renamed(program.main))
    again = px.name_inputs(other)
    assert names(again) == names(program) and names(other)[0] == "arg0_1"
    assert px.alpha_equal(again, program) and px.verify(again) == ()
    for module, args in ((Shared(), torch.ones(3, 4)), (Aliased(), torch.ones(1, 2))):
        program = px.import_ep(exported(module, args, strict=strict))
        assert px.name_inputs(program) is program


def renamed(graph: px.Graph) -> px.Graph:
    """Return a graph whose inputs are called as Dynamo and AOTAutograd call them."""
    new = {formal.name: px.Ref(f"arg{number}_1") for number, formal in enumerate(graph.inputs)}
    inputs = tuple(px.Input(new[formal.name].name, formal.meta) for formal in graph.inputs)
    return px.Graph(inputs, tuple(node.using(new) for node in graph.nodes), graph.output)


TRACE = logging.getLogger("torch.__trace")


class Reader(logging.Handler):
    """Somebody who reads the trace."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[Any] = []

    def emit(self, record: Any) -> None:
        self.records.append(record)

    @property
    def artifacts(self) -> dict[str, str]:
        return {
            record.metadata["artifact"]["name"]: record.payload
            for record in self.records
            if "artifact" in record.metadata
        }


@pytest.fixture
def reader() -> Iterator[Reader]:
    before = list(TRACE.handlers)
    found = Reader()
    TRACE.addHandler(found)
    yield found
    TRACE.removeHandler(found)
    for handler in before:  # torch's own goes with the first record if it has no folder
        TRACE.addHandler(handler)


def tower() -> px.Program:
    return px.capture(Tower(2), (torch.ones(2, 4),))


def test_each_step_is_an_artifact_and_reads_back(reader: Reader) -> None:
    program = tower()
    assert not reader.artifacts, "what is imported is written when it is transformed"
    result = px.transform(program)
    names = [
        f"purefx_{number}_{name}"
        for number, name in enumerate(["program", *[step.name for step in px.DEFAULT]])
    ]
    assert list(reader.artifacts) == names
    assert reader.artifacts["purefx_0_program"] == program.text()
    assert px.parse(
        reader.artifacts["purefx_7_dispatch" if program is result else "purefx_6_deduplicate"]
    ) == px.parse(result.text())
    assert reader.artifacts["purefx_7_dispatch"] == "nothing to do\n"
    steps = {step.name: step.before for step in result.trail}
    assert reader.artifacts["purefx_4_insert_ivals"] in {"nothing to do\n", str(steps["outline"])}
