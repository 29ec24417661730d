"""Joint programs of real models: gradients are eager's bit for bit, and the backward of all blocks is one body."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch._dynamo.functional_export import _dynamo_graph_capture_for_export

import purefx as px
from examples import zoo
from tests.importing.joints import differences, inside, joint_graph, tree_of

pytestmark = pytest.mark.models

LAYERS = 3


def short(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """Return a model of the zoo with few layers, in training mode, and the arguments of a call."""
    example = zoo.by_name(name)
    config = copy.deepcopy(example.build().config)
    setattr(config, "n_layer" if name == "gpt2" else "num_hidden_layers", LAYERS)
    torch.manual_seed(0)
    kind = {
        "gpt2": transformers.GPT2LMHeadModel,
        "llama": transformers.LlamaForCausalLM,
        "bert": transformers.BertModel,
    }[name]
    return kind(config).train(), example.inputs()[1]


BLOCKS = {"gpt2": "h.{}", "llama": "layers.{}", "bert": "layer.{}"}
"""Where the blocks are, from the module that calls them."""


@functools.cache
def captured(name: str) -> px.Program:
    """Trace at once."""
    model, kwargs = short(name)
    return px.training.capture_joint(model, (), kwargs)


def by_dynamo(name: str) -> px.Program:
    """Trace what Dynamo captured."""
    model, kwargs = short(name)
    return px.import_fx(joint_graph(_dynamo_graph_capture_for_export(model)(**kwargs), **kwargs))


@pytest.mark.parametrize(
    ("name", "capture"),
    [
        ("llama", captured),
        ("bert", captured),
        pytest.param("gpt2", captured, marks=pytest.mark.deep),
        ("gpt2", by_dynamo),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
def test_the_backward_of_all_blocks_is_one_body(
    name: str, capture: Callable[..., px.Program]
) -> None:
    program = capture(name)
    assert inside(program) >= 0.95
    bodies = tree_of(px.transform(program))
    for call in (0, 1):
        assert len({bodies[BLOCKS[name].format(number), call] for number in range(LAYERS)}) == 1


@pytest.mark.parametrize("name", BLOCKS)
def test_gradients_are_eagers(name: str) -> None:
    """Results, gradients and state are, flat and as a tree, with dropout."""
    model, kwargs = short(name)
    flat = captured(name)
    for program in (flat, px.transform(flat)):
        assert differences(program, model, (), kwargs, calls=2) == []
