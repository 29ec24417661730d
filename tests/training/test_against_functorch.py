"""``min_cut`` against functorch's partitioner, on the same models: no more bytes, and gradients that are eager's bit by bit."""

from __future__ import annotations

import copy

import pytest
import torch

import purefx as px
from bench.training import MODULES, Trained, partitions, trained
from purefx import training
from purefx.ir.state import same_contents


@pytest.mark.models
@pytest.mark.parametrize("name", ["gpt2-2", "llama-2"])
def test_no_more_is_kept_than_functorch_keeps(name: str) -> None:
    found = {row["policy"]: row for row in partitions(name, 1)}
    assert found["min_cut()"]["bytes"] <= found["functorch min-cut"]["bytes"]
    assert found["save_all()"]["bytes"] <= found["functorch default"]["bytes"]
    assert found["min_cut()"]["seconds"] < found["functorch min-cut"]["seconds"]


@pytest.mark.models
@pytest.mark.parametrize("name", ["gpt2-2", "llama-2"])
def test_gradients_of_a_model_are_those_of_eager_under_every_policy(name: str) -> None:
    module, args = trained(name), Trained.example()
    joint = training.capture_joint(copy.deepcopy(module), args)
    torch.manual_seed(0)
    loss = module(*args)
    loss.backward()
    expected = {name: parameter.grad for name, parameter in module.named_parameters(remove_duplicate=False)}
    for policy in (
        training.save_all(),
        training.min_cut(),
        training.min_cut(recompute="all"),
        training.recompute(MODULES[name.partition("-")[0]]),
        training.budget(1_000_000),
    ):
        cut = training.partition_joint(joint, policy=policy)
        forward, backward = px.lower(cut.forward, state="share"), px.lower(cut.backward, state="share")
        with torch.no_grad():
            given, *saved = forward(*args)
            gradients = backward(*saved, torch.ones(()))
        assert same_contents(given, loss.detach())
        for gradient, spec in zip(gradients, cut.backward.signature.outputs, strict=True):
            assert isinstance(spec, px.ir.StateGradient)
            assert same_contents(gradient, expected[spec.slot])
