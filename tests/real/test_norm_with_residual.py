"""A residual and the norm after it as one operator with two results, on a Llama as it is exported."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn import functional

import purefx as px

pytestmark = pytest.mark.models

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 50,
    "use_cache": False,
}


@px.rule(keeps_inner=True, once=True)
def residual_and_norm(x: Tensor, r: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    s = x + r
    wide = s.to(torch.float32)
    scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
    return w * (wide * scale).to(s.dtype), s


@residual_and_norm.becomes
def _(m: px.Match, x: Tensor, r: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    s = torch.add(x, r)
    return functional.rms_norm(s, (s.shape[-1],), w, eps), s


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_each_norm_behind_a_residual_becomes_one_operator(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**SMALL)).eval().to(dtype)
    ids = torch.randint(0, 50, (1, 6))
    program = px.capture(copy.deepcopy(model), (ids,), {"use_cache": False})
    report = residual_and_norm.explain(program)
    assert len(report.replaced) == 4 and not report.left
    assert px.verify(report.program, infer=True) == ()
    module = px.lower(px.transform(report.program))
    for number in range(2):
        ids = torch.randint(0, 50, (1, 6), generator=torch.Generator().manual_seed(number))
        mine, eager = module(ids, use_cache=False), model(ids, use_cache=False)
        torch.testing.assert_close(mine.logits, eager.logits)
