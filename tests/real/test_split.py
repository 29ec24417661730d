"""Real models split into parts are the eager models: outputs, several calls, gradients and state, to the last bit.

A Llama with a causal mask that every layer uses and a GPT-2 whose embedding is its head, at two layers; parts that
run on one thread must do exactly what the whole does.
"""

from __future__ import annotations

import copy
import functools

import pytest
import torch

import purefx as px
from examples.zoo import Example, by_name, llama
from purefx.ir.torch_private import pytree

pytestmark = [pytest.mark.models, pytest.mark.filterwarnings("error:the call.* flat in the caller")]


def tied_gpt2() -> torch.nn.Module:
    """Return a GPT-2 of two layers whose head is its embedding."""
    import transformers

    config = transformers.GPT2Config(
        n_layer=2, n_embd=32, n_head=4, vocab_size=256, use_cache=False
    )
    return transformers.GPT2LMHeadModel(config)


EXAMPLES = {"llama": llama(2), "gpt2": Example("gpt2", tied_gpt2, by_name("gpt2").draw)}

SPLITS = {
    "llama": {
        "model.embed_tokens": "first",
        "model.layers.0": "first",
        "model.layers.1": "last",
        "": "last",
    },
    "gpt2": {
        "transformer.h.0": "first",
        "transformer.h.1": "last",
        "transformer.ln_f": "last",
        "lm_head": "last",
    },
}


@functools.cache
def programs(name: str) -> tuple[torch.nn.Module, px.Program]:
    """Return the eager model and its program with sunk state."""
    model = EXAMPLES[name].build()
    return model, px.transform(px.import_ep(EXAMPLES[name].export(model)))


def split_of(name: str, how: str) -> px.Program:
    """Return the program of an example in parts."""
    program = programs(name)[1]
    if how == "balanced":
        return px.split_balanced(program, 3)
    base = px.inline(program) if how == "flat" else program
    # The root of a Llama has the mask and the rotary embedding, which go where they are needed.
    return px.split_by_module(base, {path: tag for path, tag in SPLITS[name].items() if path})


@pytest.mark.parametrize("how", ["flat", "outlined", "balanced"])
@pytest.mark.parametrize("name", list(EXAMPLES))
def test_parts_do_what_the_model_does(name: str, how: str) -> None:
    model, program = copy.deepcopy(programs(name)[0]), split_of(name, how)
    assert px.verify(program) == ()
    lowered, went = px.lower(program), px.split_provenance(program).state
    for seed in (0, 1, 2):
        args, kwargs = EXAMPLES[name].inputs(seed)
        mine, theirs = (pytree.tree_leaves(run(*args, **kwargs)) for run in (lowered, model))
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
        mine[0].square().sum().backward()
        theirs[0].square().sum().backward()
    for path, parameter in model.named_parameters():
        assert all(
            torch.equal(lowered.get_parameter(now).grad, parameter.grad) for now in went[path]
        )
