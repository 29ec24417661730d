"""Real architectures from ``transformers``: the published depth, small widths, random weights.

An example is a frozen value that describes how to build a model and its inputs.  Everything is made from a config and a seed, so
nothing is downloaded and two builds are equal.  Nothing is exported or compared here.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import transformers
from attrs import frozen

__all__ = ["ZOO", "Example", "by_name", "gemma2", "gpt2_xl", "llama", "mixtral", "qwen3"]

Inputs = tuple[tuple[Any, ...], dict[str, Any]]
"""What a model is called with: positional and keyword arguments."""

TEXT = 16
"""Tokens in a sequence."""


@frozen
class Example:
    """A model that can be built.

    >>> by_name("vit").build().config.num_hidden_layers
    12
    """

    name: str
    make: Callable[[], torch.nn.Module]
    draw: Callable[[], dict[str, Any]]
    """Draws the keyword arguments of one call from torch's global generator; where shapes are dynamic, those too."""
    train: bool = False
    dynamic_shapes: dict[str, Any] | None = None
    """What ``torch.export.export`` takes; None for static shapes."""

    def build(self) -> torch.nn.Module:
        """Return the model, the same weights each time, in the mode that it is exported in."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.make().train(self.train)

    def inputs(self, seed: int = 0) -> Inputs:
        """Return the arguments of one call.

        Args:
            seed: other seeds give other values, and other shapes where those are dynamic.
        """
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return (), self.draw()

    def export(self, model: torch.nn.Module) -> torch.export.ExportedProgram:
        """Return the exported program of a copy of the model, which shares no tensor with it.

        Args:
            model: what ``build`` returned.
        """
        args, kwargs = self.inputs()
        # The copy because exporting shares the parameters and buffers, and running either would change both.
        return torch.export.export(
            copy.deepcopy(model), args, kwargs, dynamic_shapes=self.dynamic_shapes
        )


def _tokens(name: str = "input_ids", *, length: int = TEXT) -> dict[str, Any]:
    return {name: torch.randint(3, 250, (2, length))}


def _padded_tokens() -> dict[str, Any]:
    mask = torch.ones(2, TEXT, dtype=torch.long)
    mask[1, int(torch.randint(TEXT // 2, TEXT, ())) :] = 0
    return _tokens() | {"attention_mask": mask}


def _tokens_of_any_shape() -> dict[str, Any]:
    batch, length = int(torch.randint(2, 5, ())), int(torch.randint(6, TEXT, ()))
    return {"input_ids": torch.randint(3, 250, (batch, length))}


def _image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 32, 32)}


def _large_image() -> dict[str, Any]:
    return {"pixel_values": torch.randn(2, 3, 64, 64)}


def _bert() -> torch.nn.Module:
    config = transformers.BertConfig(
        vocab_size=256,
        hidden_size=24,
        intermediate_size=48,
        num_attention_heads=2,
        num_hidden_layers=12,
    )
    return transformers.BertModel(config)


def _albert() -> torch.nn.Module:
    config = transformers.AlbertConfig(
        vocab_size=256,
        embedding_size=16,
        hidden_size=24,
        intermediate_size=48,
        num_attention_heads=2,
        num_hidden_layers=12,
    )
    return transformers.AlbertModel(config)


def _gpt2(layers: int) -> torch.nn.Module:
    # Causal language models are exported without a cache throughout: one call is one whole sequence.
    config = transformers.GPT2Config(
        vocab_size=256, n_positions=64, n_embd=24, n_head=2, n_layer=layers, use_cache=False, **ENDS
    )
    return transformers.GPT2LMHeadModel(config)


ENDS = {"bos_token_id": 1, "eos_token_id": 2}
"""The published ones are outside our small vocabulary, of which transformers warns."""

ANY_SHAPE: dict[str, Any] = {
    "input_ids": {0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", max=64)}
}

DECODER: dict[str, Any] = {
    "vocab_size": 256, "hidden_size": 24, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 4,
    "head_dim": 8, "max_position_embeddings": 64, "use_cache": False,
}  # fmt: skip

# Fewer key than query heads, as published.  With sdpa attention transformers repeats the key heads while it is exported and
# does not in eager mode, which adds up gradients in another order; with its own attention both are one computation.
GROUPED: dict[str, Any] = DECODER | {"num_key_value_heads": 2, "attn_implementation": "eager"}


def _llama(layers: int) -> torch.nn.Module:
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**DECODER, num_hidden_layers=layers)
    )


def _llama_tied() -> torch.nn.Module:
    grouped = DECODER | {"num_key_value_heads": 2}
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**grouped, num_hidden_layers=16, tie_word_embeddings=True)
    )


def _qwen3(layers: int) -> torch.nn.Module:
    return transformers.Qwen3ForCausalLM(
        transformers.Qwen3Config(**GROUPED, num_hidden_layers=layers)
    )


def _gemma2(layers: int) -> torch.nn.Module:
    return transformers.Gemma2ForCausalLM(
        transformers.Gemma2Config(**GROUPED, num_hidden_layers=layers, sliding_window=8)
    )


def _t5() -> torch.nn.Module:
    config = transformers.T5Config(
        vocab_size=256, d_model=24, d_kv=8, d_ff=48, num_layers=6, num_heads=3, use_cache=False
    )
    return transformers.T5ForConditionalGeneration(config)


def _whisper() -> torch.nn.Module:
    config = transformers.WhisperConfig(
        vocab_size=256, d_model=24, encoder_layers=4, decoder_layers=4, encoder_attention_heads=2, decoder_attention_heads=2,
        encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8, max_source_positions=20, max_target_positions=32, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, use_cache=False,
    )  # fmt: skip
    return transformers.WhisperForConditionalGeneration(config)


def _vit() -> torch.nn.Module:
    config = transformers.ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=24,
        intermediate_size=48,
        num_attention_heads=2,
        num_hidden_layers=12,
    )
    return transformers.ViTForImageClassification(config)


def _clip() -> torch.nn.Module:
    tower = {
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_attention_heads": 2,
        "num_hidden_layers": 12,
    }
    text = tower | {"vocab_size": 256, "max_position_embeddings": 32, **ENDS}
    vision = tower | {"image_size": 32, "patch_size": 8}
    return transformers.CLIPModel(
        transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    )


def _resnet() -> torch.nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[16, 32, 64, 128], depths=[3, 4, 6, 3]
    )
    return transformers.ResNetForImageClassification(config)


def _convnext() -> torch.nn.Module:
    config = transformers.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[3, 3, 9, 3])
    return transformers.ConvNextForImageClassification(config)


def _mixtral(layers: int) -> torch.nn.Module:
    config = transformers.MixtralConfig(
        **GROUPED, num_hidden_layers=layers, num_local_experts=4, num_experts_per_tok=2
    )
    return transformers.MixtralForCausalLM(config)


def _clip_inputs() -> dict[str, Any]:
    return _tokens() | _image()


def _t5_inputs() -> dict[str, Any]:
    return _padded_tokens() | _tokens("decoder_input_ids", length=8)


def _whisper_inputs() -> dict[str, Any]:
    return {"input_features": torch.randn(2, 8, 40)} | _tokens("decoder_input_ids", length=8)


@cache  # so those of one depth are one
def llama(layers: int = 32) -> Example:
    """Return Llama with a number of layers; the published 7B and 8B have 32."""
    return Example("llama", lambda: _llama(layers), _tokens)


def qwen3(layers: int = 36) -> Example:
    """Return Qwen3 with a number of layers; the published 4B and 8B have 36."""
    return Example("qwen3", lambda: _qwen3(layers), _tokens)


def gemma2(layers: int = 26) -> Example:
    """Return Gemma2, which ties its embeddings, with a number of layers; the published 2B has 26."""
    return Example("gemma2", lambda: _gemma2(layers), _tokens)


def gpt2_xl() -> Example:
    """Return GPT-2 with the 48 layers of the XL size; not in ``ZOO`` because it teaches nothing that 12 do not."""
    return Example("gpt2_xl", lambda: _gpt2(48), _tokens)


def mixtral(layers: int = 32) -> Example:
    """Return Mixtral with a number of layers; the published 8x7B has 32."""
    return Example("mixtral", lambda: _mixtral(layers), _tokens)


ZOO: tuple[Example, ...] = (
    Example("bert", _bert, _padded_tokens),
    Example("bert_train", _bert, _padded_tokens, train=True),  # with dropout
    Example("albert", _albert, _tokens),  # one layer, called 12 times
    Example("gpt2", lambda: _gpt2(12), _tokens),
    llama(),
    Example("llama_tied", _llama_tied, _tokens),  # the depth of Llama 3.2 1B, which ties
    Example("llama_dynamic", lambda: _llama(16), _tokens_of_any_shape, dynamic_shapes=ANY_SHAPE),
    qwen3(),
    gemma2(),
    Example("t5", _t5, _t5_inputs),
    Example("whisper", _whisper, _whisper_inputs),
    Example("vit", _vit, _image),
    Example("clip", _clip, _clip_inputs),
    Example("resnet", _resnet, _large_image),
    Example("resnet_train", _resnet, _large_image, train=True),
    Example("convnext", _convnext, _large_image),
    Example("convnext_train", _convnext, _large_image, train=True),
    mixtral(),
)


def by_name(name: str) -> Example:
    """Return an example of ``ZOO``.

    Raises:
        KeyError: there is none of that name.
    """
    return {example.name: example for example in ZOO}[name]
