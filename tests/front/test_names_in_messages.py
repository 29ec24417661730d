"""A message names the public function that was called, not one that it calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import Aliased, Counter, Tower, exported

X = torch.ones(2, 4)

MODULES = {
    "a tower": exported(Tower(2), torch.ones(1, 4)),
    "a buffer that is written": exported(Counter(), torch.ones(3, 4)),
    "aliased state": exported(Aliased(), torch.ones(2, 2)),
    "two layers": exported(nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), X),
}


def programs() -> dict[str, px.Program]:
    """Return programs before and after each default step, split ones, and joint ones."""
    found: dict[str, px.Program] = {}
    for name, ep in MODULES.items():
        program = found[f"{name}, imported"] = px.import_ep(ep)
        for step in px.DEFAULT:
            program = found[f"{name}, {step.name}"] = step(program)
        found[f"{name}, split"] = px.split_balanced(program, 1)
    found["joint"] = px.training.capture_joint(nn.Linear(4, 2), (X,))
    found["toy"] = px.Program.of({"": px.Graph((), (px.Node("y", px.Op("toy.neg")),), ())})
    return found


PROGRAMS = programs()

MORE: dict[str, tuple[Any, ...]] = {
    "became": ("relu",), "bisect": (px.outline, bool), "history": ("relu",), "minimize": (bool,), "name_inputs": (["x"],),
    "observe": ("*",), "report": ("none.html",), "restore_names": (nn.ReLU(),), "save": ("none.purefx",),
    "split_balanced": (2,), "split_by_module": ({"0": "a"},), "split_by_tags": (["a"],), "swap_modules": ({"0": nn.ReLU()},),
    "to_device": ("meta",), "to_dtype": (torch.float64,),
}  # fmt: skip
"""Arguments behind the program."""

FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: getattr(px, name) for name in (
        *MORE, "bodies_to_regions", "deduplicate", "digest", "dispatch", "eliminate_common_subexpressions",
        "eliminate_dead_code", "expand", "fold_constants", "functionalize", "infer", "inline", "inplace_mutations",
        "insert_ivals", "join", "lift_constants", "lift_state", "lower", "lower_stages", "mermaid", "move_non_tensor_nodes",
        "normalize_stacks", "outline", "parts", "regions_to_bodies", "relay_skips", "remove_effect_tokens", "remove_noops",
        "sink_state", "split_provenance", "stats", "sum_tied_gradients", "to_ep", "to_fx", "to_script", "training_module",
        "transform", "tree", "verify",
    )},
    "partition_joint": px.training.partition_joint,
    "phases": px.training.phases,
}  # fmt: skip
"""All public functions of a program."""

VERBS = "requires|takes|needs|accepts|returns|does not accept"


def named_in(message: str) -> set[str]:
    """Return the public functions of which a message is."""
    subjects = re.findall(rf"(?:^|\s|px\.)(\w+)(?: (?:{VERBS})\b|:)", message)
    return set(subjects) & FUNCTIONS.keys()


def message_of(call: Callable[[], object]) -> str:
    """Return the message of the exception of a call; an empty string if it raises none."""
    try:
        call()
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_message_names_the_function_that_was_called(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    messages = {
        described: message_of(lambda: FUNCTIONS[name](program, *MORE.get(name, ())))  # noqa: B023  called at once
        for described, program in PROGRAMS.items()
    }
    assert {key: text for key, text in messages.items() if named_in(text) - {name}} == {}


SPLITS: dict[str, Callable[[px.Program], px.Program]] = {
    "split_balanced": lambda program: px.split_balanced(program, 100),
    "split_by_module": lambda program: px.split_by_module(program, {"unknown": "a"}),
    "split_by_tags": lambda program: px.split_by_tags(program, ["a"]),
}


@pytest.mark.parametrize("name", SPLITS)
def test_a_split_of_state_that_is_an_input_names_itself(name: str) -> None:
    program = PROGRAMS["two layers, imported"]
    with pytest.raises(px.errors.PipelineError, match=f"^{name} requires .*'state sunk'"):
        SPLITS[name](program)


def test_a_split_by_no_module_names_its_argument() -> None:
    program = PROGRAMS["two layers, dispatch"]
    with pytest.raises(px.errors.PartitionError, match=r"^split_by_module: modules is empty"):
        px.split_by_module(program, {})
