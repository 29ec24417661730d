"""``import_ep`` undoes ``to_ep``, from every stage, on generated programs and modules; torch runs what comes out like eager."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings

import purefx as px
from purefx.laws import behaviour_differences, changes_in_program
from purefx.laws.strategies import Exported, ModuleTree, exported_programs, module_trees
from purefx.laws.tiers import share
from purefx.laws.toy import tensor_meaning
from purefx.lowering.to_ep.make import apart
from tests.laws.direct import Direct, called_meaning
from tests.models import Aliased, Counter, Shared, Tower, changes_in_export, exported, imported
from tests.to_ep.support import differences, flattened, loaded, stages

OPERATORS, MODULES = min(share(12), 100), min(share(5), 8)


def drawn(strategy: Any, examples: int) -> list[Any]:
    """Return generated values, always the same ones."""
    found: list[Any] = []

    @settings(max_examples=examples, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
              suppress_health_check=list(HealthCheck))  # fmt: skip
    @given(strategy)
    def keep(value: Any) -> None:
        found.append(value)

    keep()
    return found


@cache
def programs() -> tuple[tuple[Exported, px.Program], ...]:
    """Return exported programs of operators, imported."""
    return tuple((case, px.import_ep(case.ep)) for case in drawn(exported_programs(), OPERATORS))


@cache
def modules() -> tuple[tuple[ModuleTree, px.Program], ...]:
    """Return generated modules that torch exports, imported."""
    found: list[tuple[ModuleTree, px.Program]] = []
    for number, tree in enumerate(drawn(module_trees(), MODULES)):
        names = [name for name, _ in tree.build().named_modules() if name]
        for preserved in names[number % max(len(names), 1) :][:1], []:
            try:
                ep = tree.export(preserve=preserved)
            except Exception:  # what the exporter refuses; how much, another test says
                continue
            found.append((tree, px.import_ep(ep)))
            break
    assert len(found) > MODULES // 2
    assert any(program.call_signatures for _, program in found)
    return tuple(found)


def shown(program: px.Program) -> str:
    """Return all that a digest is made of, as far as a difference by names may not show it."""
    effects = [
        (name, node.name, node.do.effects)
        for name, node in program.nodes()
        if isinstance(node.do, px.Op)
    ]
    signature = program.signature
    return f"{program.text()}\n{effects}\n{signature}\n{signature.in_spec} {signature.out_spec}\n{program.state.identities}"


def assert_round_trip(program: px.Program) -> None:
    """Fail unless importing what ``to_ep`` makes gives the flattened program, up to names, with its call signatures."""
    flat = apart(flattened(program))
    again = px.import_ep(px.to_ep(program))
    assert px.alpha_equal(again, flat), f"{px.diff(flat, again)}\n{shown(flat)}\n{shown(again)}"
    assert {frame: str(told) for frame, told in again.call_signatures.items()} == {
        frame: str(px.ir.CallSignature(told.in_spec, told.out_spec, told.arg_names))
        for frame, told in flat.call_signatures.items()
    }


def test_import_undoes_it_for_flat_programs() -> None:
    """A program of which nothing is copied in place, and no result shares memory with what is written, comes back as it was."""
    same = 0
    for _, program in (*programs(), *modules()):
        assert_round_trip(program)
        if apart(flattened(program)) is program:
            same += 1
            assert px.alpha_equal(px.import_ep(px.to_ep(program)), program)
    assert same > OPERATORS // 2


def test_import_undoes_it_for_rewritten_programs() -> None:
    done = 0
    for _, program in (*programs()[::2], *modules()):
        try:
            rewritten = px.transform(program)
        except px.errors.UnsupportedProgram:  # a token that a module call takes
            continue
        done += 1
        assert_round_trip(rewritten)
    assert done > OPERATORS // 4


@pytest.mark.parametrize(
    ("module", "decomposed"),
    [(Shared(), False), (Shared(), True), (Aliased(), False), (Tower(2), False)],
)
def test_every_stage_is_taken(module: torch.nn.Module, decomposed: bool) -> None:
    """Flat, in place, sunk, outlined, deduplicated: torch takes it, runs it like eager, and it comes back."""
    torch.manual_seed(0)
    width = 2 if isinstance(module, Aliased) else 4
    calls = [(torch.randn(3, width),) for _ in range(3)]
    for program in stages(imported(module, *calls[0], decomposed=decomposed)):
        assert_round_trip(program)
        ep = px.to_ep(program)
        ep.validate()
        assert differences(ep, module, calls) == []


def test_they_mean_what_the_programs_do() -> None:
    """The graph of the exported program is run by the interpreter of torch."""
    for case, program in programs()[::2]:
        expected = tensor_meaning(program, case.calls)
        ep = px.to_ep(program)
        given = called_meaning(Direct(ep), ep, case.calls)
        assert given.outputs == expected.outputs, program.text()
        assert given.inputs == expected.inputs
        assert all(dict(given.state)[name] == value for name, value in expected.state)


def test_generated_modules_run_like_eager() -> None:
    for tree, program in modules():
        # Torch makes buffers of the constants of the root, and saves them.
        ep = tree.export()
        known = {f"after {len(tree.calls)} calls, state: invented {name}" for name in ep.constants}
        known.update(
            behaviour_differences(ep.module(), tree.build(), tree.calls)
        )  # what the export itself got wrong
        for made in (program, px.transform(program)):
            wrong = behaviour_differences(px.to_ep(made).module(), tree.build(), tree.calls)
            assert set(wrong) <= known, "\n".join([*wrong, str(tree)])


def test_nothing_is_changed() -> None:
    """Neither the program nor the exported program that it came from, nor guards in the environment that they share."""
    for case, program in programs()[::8]:
        assert changes_in_program(program, lambda program=program: px.to_ep(program)) == []
        assert changes_in_export(case.ep, lambda program=program: px.to_ep(program)) == []


def test_state_is_copied_or_shared() -> None:
    """Running the result leaves the program alone; with share it writes to the program's tensors."""
    program = px.transform(imported(Counter(), torch.ones(2, 4)))
    count = program.state["count"].value
    px.to_ep(program).module()(torch.ones(2, 4))
    assert count.item() == 0
    px.to_ep(program, state="share").module()(torch.ones(2, 4))
    assert count.item() == 1
    assert (
        px.to_ep(program, state="share").state_dict["linear.weight"]
        is program.state["linear.weight"].value
    )


def test_ties_and_shared_memory_stay() -> None:
    module = Aliased()
    ep = px.to_ep(px.transform(imported(module, torch.ones(1, 2))))
    assert ep.state_dict["other.weight"] is ep.state_dict["linear.weight"]
    ep.state_dict["part"].add_(1)
    assert ep.state_dict["whole"].tolist() == [0, 1, 1, 0]


def test_saving_keeps_it() -> None:
    """State that is not saved, call signatures, dynamic sizes; what is loaded runs like eager."""
    torch.manual_seed(0)
    module = Shared()
    module.register_buffer("extra", torch.ones(2), persistent=False)
    x = torch.randn(3, 4)
    options: dict[str, Any] = {"dynamic_shapes": ({0: torch.export.Dim("n", min=2, max=9)},)}
    source = exported(module, x, preserve_module_call_signature=("items.0", "items.1"), **options)
    again = loaded(px.to_ep(px.transform(px.import_ep(source))))
    # Torch puts tied state side by side when it saves, and unties it when it loads, whoever made the program.
    theirs = loaded(source)
    assert px.alpha_equal(px.import_ep(again), px.import_ep(theirs))
    assert [entry.fqn for entry in again.module_call_graph if entry.signature] == [
        "",
        "items.0",
        "items.1",
    ]
    calls = [(torch.randn(rows, 4),) for rows in (3, 2, 7)]
    assert differences(again, module, calls) == differences(theirs, module, calls)
    assert differences(again, module, calls)[1:] == []
