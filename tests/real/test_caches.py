"""Decoders with key-value caches: five steps of decoding are eager's, bit by bit, with each kind of cache of transformers.

A cache is an argument whose class looks at its parts (dynamic), or state of the module (static); ``docs/caches.md`` has a static
one as an argument, and one of encoder and decoder.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
import transformers
from transformers.cache_utils import DynamicCache
from transformers.integrations.executorch import (
    TorchExportableModuleForDecoderOnlyLM,
    register_dynamic_cache_export_support,
)

import purefx as px
from examples.zoo import GROUPED
from purefx.laws import value_differences

pytestmark = pytest.mark.models

STEPS = 5

REGISTER = functools.cache(register_dynamic_cache_export_support)  # once in a process

SMALL: dict[str, Any] = GROUPED | {"num_hidden_layers": 2, "use_cache": True}


DECODERS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)),
    "gemma2": lambda: transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**SMALL, sliding_window=4)
    ),
}


def made(make: Any) -> Any:
    """Return a model with weights from a seed."""
    REGISTER()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make().eval()


def all_ways(model: Any, ep: torch.export.ExportedProgram) -> list[Any]:
    """Return eager, and what is lowered: from the tree, from the export, and by unflatten."""
    program = px.transform(px.import_ep(ep))
    return [model, px.lower(program), px.lower(px.import_ep(ep)), px.unflatten(ep)]


TORCH_RAISES: dict[tuple[str, str], type[Exception]] = {("2.15", "dynamic"): NameError}
"""What `ep.module()` may raise, by the release of torch and the kind of cache: with new releases of transformers, the guards
that torch generates use a name that it does not define."""


def as_torch_runs_it(ep: torch.export.ExportedProgram, kind: str, step: dict[str, Any]) -> Any:
    """Return the result of `ep.module()`, or skip the test with the known error of torch."""
    release = ".".join(torch.__version__.split(".")[:2])
    known = TORCH_RAISES.get((release, kind), ())
    try:
        return ep.module()(**step)
    except known as error:
        pytest.xfail(f"torch {release}: {type(error).__name__}: {error}")


AUTO = {2: torch.export.Dim.AUTO}

PROMPT = torch.tensor([[5, 7, 11, 13]])


def prompted(model: Any) -> DynamicCache:
    """Return the cache of a model after the prompt."""
    cache = DynamicCache(config=model.config)
    model(input_ids=PROMPT, past_key_values=cache)
    return cache


def step(token: torch.Tensor, cache: Any, number: int) -> dict[str, Any]:
    """Return the arguments of one step of decoding."""
    positions = torch.tensor([[4 + number]])
    return {"input_ids": token, "past_key_values": cache, "position_ids": positions}


@functools.cache
def dynamic(name: str) -> tuple[Any, torch.export.ExportedProgram]:
    """Return a model, and its export with a cache of open length."""
    model = made(DECODERS[name])
    lengths = [[AUTO, AUTO], [AUTO, AUTO]]
    shapes = {"input_ids": None, "past_key_values": lengths, "position_ids": None}
    given = step(PROMPT[:, :1], prompted(model), 0)
    return model, torch.export.export(model, (), given, dynamic_shapes=shapes)


@pytest.mark.parametrize("name", DECODERS)
def test_decoding_with_a_dynamic_cache(name: str) -> None:
    """The cache that a step returns is passed to the next; a sliding window does not count, so positions are passed."""
    with torch.no_grad():
        model, ep = dynamic(name)
        found: list[Any] = []
        for each in all_ways(model, ep):
            cache, token, logits = prompted(model), PROMPT[:, -1:], []
            for number in range(STEPS):
                result = each(**step(token, cache, number))
                cache, token = result.past_key_values, result.logits[:, -1:].argmax(-1)
                logits.append(result.logits)
            found.append((logits, cache))
    assert [value_differences(each, found[0]) for each in found[1:]] == [[]] * 3


@pytest.mark.parametrize("name", DECODERS)
def test_decoding_with_a_static_cache_as_state(name: str) -> None:
    """Each step writes the cache, which is buffers of the module that transformers puts around the model."""
    decoder = made(DECODERS[name])
    decoder.generation_config.cache_implementation = "static"
    model = TorchExportableModuleForDecoderOnlyLM(decoder, 1, 16, torch.device("cpu")).model
    found: list[Any] = []
    with torch.no_grad():
        ep = torch.export.export(
            model, (), {"input_ids": PROMPT[:, :1], "cache_position": torch.tensor([0])}
        )
        for each in all_ways(model, ep):
            tokens = [PROMPT[:, at % 4 : at % 4 + 1] for at in range(STEPS)]
            found.append(
                [
                    each(input_ids=token, cache_position=torch.tensor([at]))
                    for at, token in enumerate(tokens)
                ]
            )
    assert [value_differences(each, found[0]) for each in found[1:]] == [[]] * 3


@pytest.mark.parametrize("name", DECODERS)
def test_torch_runs_its_export_with_a_dynamic_cache(name: str) -> None:
    """Errors of torch are listed by release; everything else is eager's result."""
    with torch.no_grad():
        model, ep = dynamic(name)
        given = step(PROMPT[:, :1], prompted(model), 0)
        result = as_torch_runs_it(ep, "dynamic", given)
        expected = model(**step(PROMPT[:, :1], prompted(model), 0))
    assert value_differences(result.logits, expected.logits) == []
