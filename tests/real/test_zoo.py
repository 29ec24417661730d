"""Real architectures, at their real depth: what comes back is the eager model.

Every example is exported once, and every oracle of ``purefx.laws`` is asked about everything that is lowered
from it, bit by bit.  Eager models and exported programs share no tensor.
"""

from __future__ import annotations

import functools
from typing import Literal

import pytest
import torch

import purefx as px
from examples.zoo import ZOO, Example, by_name, mixtral
from purefx.laws import assert_same_as_eager, gradient_differences
from purefx.laws.oracles import Check, structure_of
from tests.models import decompose

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("error:the call.* flat in the caller")]

To = Literal["graph_module", "interpreter"]

SEEDS = (1, 2, 3)
"""Other inputs than the exported ones."""

OTHER_GRADIENTS = {"llama_tied"}
"""Transformers itself computes attention over grouped heads in another way while it is exported (it repeats the key heads,
eager sdpa does not), so gradients are summed in another order; bit by bit they are those of ``ep.module()``."""

NO_GRADIENTS = {"resnet_train"}
"""Core aten is for inference: its functional batch norm saves the statistics that are then overwritten, so backward raises,
for ``ep.module()`` as well."""

MORE = {"llama", "qwen3", "gemma2", "bert", "resnet", "convnext", "llama_tied", "mixtral"}
"""Models that only `make deep` tests: `make test` has one of each family, in training, with open sizes or with fewer layers."""

SHORT = {"mixtral of 8 layers": mixtral(8)}
"""Examples of another depth: 32 layers of experts take a quarter of the time of all."""

FEW = ("bert_train", "llama_dynamic", "resnet_train", "t5")
"""One of each kind, for what does not depend on the model: the interpreter, flat programs."""

LARGER = ("gpt2", "convnext", "llama_dynamic", "mixtral")
"""Models that only `make deep` decomposes."""

WAYS = [
    *[
        pytest.param(one.name, "graph_module", marks=[pytest.mark.deep] if one.name in MORE else [])
        for one in ZOO
    ],
    *[(name, "graph_module") for name in SHORT],
    *[(name, "interpreter") for name in FEW],
]


def example(name: str) -> Example:
    """Return an example of the zoo, or of another depth."""
    return SHORT[name] if name in SHORT else by_name(name)


@functools.cache
def eager(name: str) -> torch.nn.Module:
    """Return the eager model; the oracles run copies of it."""
    return example(name).build()


@functools.cache
def exported(name: str) -> torch.export.ExportedProgram:
    """Export an example; once, because that takes most of the time."""
    return example(name).export(eager(name))


@functools.cache
def decomposed(name: str) -> torch.export.ExportedProgram:
    """Return an example in core aten, where writes became outputs."""
    return decompose(exported(name))


@functools.cache
def outlined(name: str) -> px.Program:
    """Return an example after the default pipeline."""
    return px.transform(px.import_ep(exported(name)))


def calls(name: str) -> list[tuple[tuple[object, ...], dict[str, object]]]:
    """Return the arguments of several calls in a row."""
    return [example(name).inputs(seed) for seed in SEEDS]


@pytest.mark.parametrize(("name", "to"), WAYS)
def test_what_comes_back_is_the_eager_model(name: str, to: To) -> None:
    """Outputs, mutated inputs, state after several calls, keys, ties, the module tree, and the gradient of every parameter."""
    module = px.lower(outlined(name), to=to)
    assert_same_as_eager(module, eager(name), calls(name), checks=["structure", "behaviour"])
    close = 1e-3 if name in OTHER_GRADIENTS else 0.0
    assert gradient_differences(module, eager(name), calls(name), rtol=close, atol=close) == []


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(OTHER_GRADIENTS))
@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning"
)  # torch, when it copies its own specs
def test_gradients_that_exporting_changes_are_those_of_the_exported_program(name: str) -> None:
    """Where the exported computation is not eager's, it is still the one that runs."""
    assert (
        gradient_differences(px.lower(outlined(name)), exported(name).module(), calls(name)) == []
    )


@pytest.mark.parametrize(
    "name",
    [
        "bert_train",
        "resnet_train",
        *[pytest.param(name, marks=pytest.mark.deep) for name in LARGER],
    ],
)
def test_so_it_is_after_decomposition(name: str) -> None:
    """The same from core aten, where BatchNorm's statistics are outputs that must be written back."""
    program = px.transform(px.import_ep(decomposed(name)))
    checks: list[Check] = (
        ["structure", "behaviour"]
        if name in NO_GRADIENTS
        else ["structure", "behaviour", "gradients"]
    )
    assert_same_as_eager(px.lower(program), eager(name), calls(name), checks=checks)


@pytest.mark.parametrize("name", FEW)
def test_a_flat_program_runs_too(name: str) -> None:
    """Lowering without transforming gives one module that behaves the same."""
    module = px.lower(px.import_ep(exported(name)))
    assert_same_as_eager(module, eager(name), calls(name)[:2], checks=["behaviour"])


@pytest.mark.parametrize(
    ("name", "ties"),
    [
        ("gpt2", ["transformer.wte.weight = lm_head.weight"]),
        pytest.param(
            "llama_tied",
            ["model.embed_tokens.weight = lm_head.weight"],
            marks=pytest.mark.deep,
        ),
        ("llama_dynamic", []),
    ],
)
def test_shared_weights_are_shared(name: str, ties: list[str]) -> None:
    """Embeddings that the config ties are one tensor in what comes back, and only those."""
    assert structure_of(px.lower(outlined(name)))["tied tensors"] == ties


@pytest.mark.parametrize(
    ("name", "layer"),
    [("llama_dynamic", "model.layers"), ("bert_train", "encoder.layer"), ("vit", "vit.layers")],
)
def test_equal_layers_are_one_body(name: str, layer: str) -> None:
    """All layers of a model with equal layers run the same code."""
    module = px.lower(outlined(name))
    assert len({type(child).forward for child in module.get_submodule(layer).children()}) == 1


def test_one_layer_called_twelve_times_is_one_module() -> None:
    """ALBERT has one layer; what comes back has no second one, and no invented key."""
    module = px.lower(outlined("albert"))
    names = [name for name, _ in module.named_modules() if name.endswith("albert_layers.0")]
    assert len(names) == 1
    assert not [key for key in module.state_dict() if "@" in key]
