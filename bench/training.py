"""Training programs: what crosses from the forward to the backward, and how long it takes to decide that.

The same module is traced once for purefx and once for functorch, whose partitioners are timed in turn with ours, each on the
graph that it takes.  Bytes are those of values that are computed; parameters, buffers and arguments are kept by their owners.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch
import transformers
from functorch.compile import default_partition, min_cut_rematerialization_partition
from torch import nn
from torch._functorch.aot_autograd import aot_export_joint_with_descriptors

from bench.measure import alternate
from purefx import training

__all__ = ["HEADER", "Trained", "line", "partitions", "trained"]

HEADER = (
    f"{'partition':<10} {'nodes':>6} {'policy':<28} {'saved bytes':>12}"
    f" {'of functorch':>12} {'again':>6} {'ms':>8} {'ratio':>7}"
)

VOCABULARY, WIDTH, LENGTH, BATCH = 256, 64, 128, 4


class Trained(nn.Module):
    """A causal language model with its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        length = ids.shape[1]
        # In four dimensions, so that transformers does not look into it.
        mask = torch.full((length, length), -1e9).triu(1).expand(ids.shape[0], 1, -1, -1)
        logits = self.model(input_ids=ids, attention_mask=mask).logits
        return nn.functional.cross_entropy(
            logits[:, :-1].reshape(-1, VOCABULARY), ids[:, 1:].reshape(-1)
        )

    @staticmethod
    def example() -> tuple[torch.Tensor]:
        """Return arguments for one call."""
        return (torch.arange(BATCH * LENGTH).reshape(BATCH, LENGTH) * 7 % VOCABULARY,)


def trained(name: str) -> Trained:
    """Return ``gpt2-4``, ``llama-4`` or ``llama-16``: from its config, with random weights, without dropout."""
    kind, _, layers = name.partition("-")
    torch.manual_seed(0)
    if kind == "gpt2":
        config: Any = transformers.GPT2Config(
            vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_head=4, n_layer=int(layers), use_cache=False,
            bos_token_id=1, eos_token_id=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        return Trained(transformers.GPT2LMHeadModel(config))
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=2 * WIDTH, num_attention_heads=4, num_key_value_heads=4,
        max_position_embeddings=LENGTH, use_cache=False, num_hidden_layers=int(layers),
    )  # fmt: skip
    return Trained(transformers.LlamaForCausalLM(config))


MODULES = {"gpt2": "model.transformer.h.*", "llama": "model.model.layers.*"}
"""The blocks of each model."""


def partitions(name: str, rounds: int) -> list[dict[str, Any]]:
    """Cut one model by every policy, and by functorch, and time that.

    Args:
        name: of the model, as ``trained`` takes it.
        rounds: of timing.
    """
    module, args = trained(name), Trained.example()
    joint = training.capture_joint(copy.deepcopy(module), args)
    policies = dict(_policies(name))
    cuts = {
        said: training.partition_joint(joint, policy=policy) for said, policy in policies.items()
    }
    with ExitStack() as stack:
        graph = aot_export_joint_with_descriptors(stack, module, args).graph_module
        theirs = {said: _saved_by(cut, graph) for said, cut in FUNCTORCH.items()}
        runs: dict[str, Callable[[], Any]] = {
            **{
                said: lambda policy=policy: training.partition_joint(joint, policy=policy)
                for said, policy in policies.items()
            },
            **{
                said: lambda cut=cut: cut(graph, None, num_fwd_outputs=1)
                for said, cut in FUNCTORCH.items()
            },
        }
        seconds = alternate(runs, rounds=rounds)
    reference = "functorch min-cut"
    return [
        {
            "name": name,
            "nodes": len(joint.main.nodes),
            "policy": said,
            "bytes": cuts[said].saved_bytes if said in cuts else theirs[said],
            "of_functorch": (cuts[said].saved_bytes if said in cuts else theirs[said])
            / theirs[reference],
            "again": len(cuts[said].recomputed) if said in cuts else None,
            "seconds": seconds[said],
            "ratio": seconds[reference] / seconds[said],
        }
        for said in runs
    ]


def _policies(name: str) -> Iterator[tuple[str, training.Policy]]:
    yield "save_all()", training.save_all()
    yield "min_cut()", training.min_cut()
    yield 'min_cut(recompute="all")', training.min_cut(recompute="all")
    yield "recompute(blocks)", training.recompute(MODULES[name.partition("-")[0]])
    yield f"budget({BUDGET:,})", training.budget(BUDGET)


BUDGET = 4_000_000

FUNCTORCH: dict[str, Callable[..., Any]] = {
    "functorch default": default_partition,
    "functorch min-cut": min_cut_rematerialization_partition,
}


def _saved_by(cut: Callable[..., Any], graph: torch.fx.GraphModule) -> int:
    # What the forward returns behind its one result and is no input.
    forward, _ = cut(graph, None, num_fwd_outputs=1)
    (output,) = [node for node in forward.graph.nodes if node.op == "output"]
    return sum(
        _bytes(node.meta.get("val")) for node in output.args[0][1:] if node.op != "placeholder"
    )


def _bytes(value: Any) -> int:
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 8


def line(found: dict[str, Any]) -> str:
    """Return one row of the table."""
    again = "" if found["again"] is None else str(found["again"])
    return (
        f"{found['name']:<10} {found['nodes']:>6,} {found['policy']:<28} {found['bytes']:>12,} {found['of_functorch']:>12.2f} "
        f"{again:>6} {found['seconds'] * 1e3:>8.1f} {found['ratio']:>6.1f}x"
    )
