"""Arguments that only fit together: those of convolutions, recurrent cells, embeddings, optimizers, quantized layers ...

A family of operators calls its arguments by the same names, so a profile is a value for each name, and what a profile
does not name is drawn as usual.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import torch

__all__ = ["profile_of"]

Profile = Mapping[str, Any]


def _rank(name: str) -> int:
    found = re.search(r"([123])d", name)
    return int(found[1]) if found else 3 if "3d" in name else 2


def _convolution(name: str, dice: Random) -> Profile:
    n, transposed = _rank(name), "transpose" in name or dice.random() < 0.2
    x, out = torch.rand(2, 3, *[6] * n), [8 if transposed else 4] * n
    weight = torch.rand(*((3, 4) if transposed else (4, 3)), *[3] * n)
    if "depthwise" in name:
        weight = torch.rand(3, 1, *[3] * n)
    channels = weight.shape[1 if transposed else 0]
    return {
        "input": x, "self": x, "X": x, "weight": weight, "W": weight, "w": weight, "bias": torch.rand(channels),
        "B": torch.rand(channels), "stride": [1] * n, "padding": dice.choice(([0] * n, [0])), "dilation": [1] * n, "groups": 1,
        "transposed": transposed, "output_padding": [0] * n, "kernel_size": [3] * n, "benchmark": False, "deterministic": False,
        "allow_tf32": False, "cudnn_enabled": False, "output_mask": [True] * 3, "bias_sizes": [channels], "attr": "none",
        "scalars": [], "algorithm": "", "grad_output": torch.rand(2, channels, *out), "unary_attr": "none", "unary_scalars": [],
        "binary_attr": "add", "other": torch.rand(2, channels, *out), "alpha": 1.0, "unary_algorithm": "",
        "ggI": x.clone(), "ggW": weight.clone(), "ggb": torch.rand(channels), "gO": torch.rand(2, channels, *out),
        "input_size": [*x.shape], "finput": torch.empty(0), "z": torch.rand(2, channels, *out),
        "output": torch.empty(0), "fgrad_input": torch.empty(0),
    }  # fmt: skip


def _recurrent(name: str, dice: Random) -> Profile:
    gates = 16 if "lstm" in name else 12 if "gru" in name else 4
    kind = torch.nn.LSTM if gates == 16 else torch.nn.GRU if gates == 12 else torch.nn.RNN
    state = torch.rand(2, 4)
    cell = "cell" in name
    many = [torch.rand(1, 2, 4)] * 2 if gates == 16 else torch.rand(1, 2, 4)
    return {
        "input": torch.rand(2, 3) if cell else torch.rand(5, 2, 3), "data": torch.rand(10, 3),
        "batch_sizes": torch.tensor([2] * 5),
        "hx": ([state, state.clone()] if gates == 16 else state) if cell else many, "cx": state.clone(),
        "w_ih": torch.rand(gates, 3), "w_hh": torch.rand(gates, 4), "b_ih": torch.rand(gates), "b_hh": torch.rand(gates),
        "params": [each.detach() for each in kind(3, 4).parameters()], "has_biases": True, "num_layers": 1,
        "dropout": dice.choice((0.0, 0.5)), "bidirectional": False, "batch_first": False, "input_gates": torch.rand(2, gates),
        "hidden_gates": torch.rand(2, gates), "input_bias": torch.rand(gates), "hidden_bias": torch.rand(gates),
    }  # fmt: skip


def _embedding(name: str, dice: Random) -> Profile:
    weight, four = torch.rand(5, 3), torch.tensor([0, 1, 2, 4])
    return {
        "weight": weight, "indices": four, "indices_": four, "offsets": torch.tensor([0, 2]), "offsets_": torch.tensor([0, 2]),
        "offset2bag": torch.tensor([0, 0, 1, 1]), "bag_size": torch.tensor([2, 2]), "num_weights": 5, "mode": dice.choice((0, 1)),
        "maximum_indices": torch.zeros(2, 3, dtype=torch.int64), "grad": torch.rand(2, 3), "per_sample_weights": None,
        "self": weight, "max_norm": 0.5, "norm_type": 2.0, "padding_idx": -1, "sparse": False, "include_last_offset": False,
    }  # fmt: skip


def _upsample(name: str, dice: Random) -> Profile:
    n = _rank(name)
    x, sizes = torch.rand(1, 2, *[4] * n), [8] * n
    by_scale = "vec" in name and dice.random() < 0.5
    return {
        "input": x, "self": x, "output_size": None if by_scale else sizes, "input_size": [*x.shape], "align_corners": False,
        "scale_factors": [2.0] * n if by_scale else None, "grad_output": torch.rand(1, 2, *sizes), "scales": None,
        "scales_h": None, "scales_w": None, "scales_d": None, "size": sizes[0] if by_scale else sizes, "antialias": False,
    }  # fmt: skip


def _optimizer(name: str, dice: Random) -> Profile:
    def some() -> list[torch.Tensor]:
        return [torch.rand(3), torch.rand(2, 2)]

    lists = ("self", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs", "state_sums", "momentum_buffer_list")
    lr = torch.tensor(0.1) if "tensor_lr" in name else 0.1
    return {
        **{each: some() for each in lists}, "state_steps": [torch.tensor(1.0), torch.tensor(1.0)], "lr": lr, "beta1": 0.9,
        "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-8, "amsgrad": dice.random() < 0.5, "maximize": False, "grad_scale": None,
        "found_inf": None, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False, "lr_decay": 0.1,
    }  # fmt: skip


def _foreach(name: str, dice: Random) -> Profile:
    def some() -> list[torch.Tensor]:
        return [torch.rand(3), torch.rand(2, 2)]

    square = [torch.rand(2, 2), torch.rand(3, 3)]
    lists = ("self", "other", "tensor1", "tensor2", "tensors1", "weights", "exponent", "src", "out")
    found = {each: some() for each in lists}
    if "_mm" in name:
        found |= {each: [part.clone() for part in square] for each in ("self", "mat2", "other")}
    scalars = torch.rand(2) if re.search(r"addc(div|mul)_?\.Tensor", name) else [1.0, 2.0]
    return {**found, "scalars": scalars, "weight": dice.choice((0.5, [0.5, 0.25])) if "List" in name else 0.5}


def _grid(name: str, dice: Random) -> Profile:
    n = _rank(name)
    return {
        "input": torch.rand(1, 2, *[4] * n), "grid": torch.rand(1, *[3] * n, n), "interpolation_mode": 0, "padding_mode": 0,
        "align_corners": False, "grad_output": torch.rand(1, 2, *[3] * n), "output_mask": [True, True],
    }  # fmt: skip


def _pool(name: str, dice: Random) -> Profile:
    n = _rank(name)
    ones, twos = [1] * n, [2] * n
    small = torch.rand(1, 2, *twos)
    return {
        "self": torch.rand(1, 2, *[4] * n), "kernel_size": twos, "stride": twos, "padding": [0] * n, "dilation": ones,
        "ceil_mode": False, "indices": torch.zeros(1, 2, *twos, dtype=torch.int64), "grad_output": small, "output": small,
        "output_size": [4] * n, "input": torch.rand(1, 2, *[4] * n),
    }  # fmt: skip


def _pad(name: str, dice: Random) -> Profile:
    n = _rank(name)
    return {"self": torch.rand(1, 2, *[4] * n), "padding": [1] * (2 * n), "grad_output": torch.rand(1, 2, *[6] * n)}


def _norm(name: str, dice: Random) -> Profile:
    found: dict[str, Any] = {each: torch.rand(4) + 0.5 for each in ("running_mean", "running_var", "weight", "bias")}
    x = torch.rand(2, 4, 3)
    if "layer" in name or "rms" in name:
        found |= {each: torch.rand(3) for each in ("weight", "bias")}
        found |= {"mean": torch.rand(2, 4, 1), "rstd": torch.rand(2, 4, 1), "normalized_shape": [3]}
    else:
        found |= {"mean": torch.rand(2, 2), "rstd": torch.rand(2, 2), "save_mean": torch.rand(4), "save_invstd": torch.rand(4)}
    return {
        **found, "input": x, "self": x, "X": x, "grad_out": torch.rand(2, 4, 3), "N": 2, "C": 4, "HxW": 3,
        "group": 2, "eps": 1e-5,
        "momentum": 0.1, "training": dice.random() < 0.5, "output_mask": [True] * 3,
    }  # fmt: skip


def _loss(name: str, dice: Random) -> Profile:
    two = "2d" in name
    x = torch.rand(2, 5, 3, 3) if two else torch.rand(3, 5)
    target = torch.zeros((2, 3, 3) if two else 3, dtype=torch.int64)
    if "multilabel" in name:
        target = torch.zeros(3, 5, dtype=torch.int64)
    reduction = dice.choice((0, 1, 2))
    grad = torch.rand(target.shape[: 3 if two else 1]) if reduction == 0 else torch.rand(())
    return {
        "self": x, "target": target, "weight": None, "reduction": reduction, "ignore_index": -100, "grad_output": grad,
        "total_weight": torch.tensor(3.0), "p": 1, "margin": 1.0, "log_probs": torch.rand(5, 2, 4).log_softmax(-1),
        "targets": torch.ones(2, 2, dtype=torch.int64), "input_lengths": torch.tensor([5, 5]) if "Tensor" in name else [5, 5],
        "target_lengths": torch.tensor([2, 2]) if "Tensor" in name else [2, 2], "blank": 0, "zero_infinity": False,
    }  # fmt: skip


def _quantizing(name: str, dice: Random) -> Profile:
    x = torch.rand(2, 3)
    per_channel = torch.quantize_per_channel(x, torch.rand(3) + 0.1, torch.zeros(3, dtype=torch.int64), 1, torch.qint8)
    found: dict[str, Any] = {
        "scales": torch.rand(3) + 0.1, "zero_points": torch.zeros(3, dtype=torch.int64), "axis": 1,
        "quant_min": 0, "quant_max": 255,
        "dtype": torch.qint8, "scale": 0.1, "zero_point": 0, "tensors": [x, x + 1], "reduce_range": False, "grad_factor": 1.0,
        "grad": torch.rand(2, 3), "fake_quant_enabled": torch.ones(1), "size": [2, 3],
    }  # fmt: skip
    if "per_channel" in name and name.startswith("aten.q_"):
        found["self"] = per_channel
    elif "quantize" in name and "dequant" not in name and "int_repr" not in name:
        found["self"] = x
    if "learnable" in name or "tensor_qparams" in name or "cachemask_tensor" in name:
        count = 3 if "channel" in name else 1
        found |= {
            "scale": torch.rand(count) + 0.1,
            "zero_point": torch.zeros(count, dtype=torch.float32 if "learn" in name else torch.int32),
        }
    if "tensors" in name:
        found |= {"scales": torch.rand(2) + 0.1, "zero_points": torch.zeros(2)}
    if "_make_per" in name:
        found["self"] = torch.zeros(2, 3, dtype=torch.int8)
        found |= {"scale": torch.rand(3) + 0.1, "zero_point": torch.zeros(3, dtype=torch.int64)} if "channel" in name else {}
    return found


def _packed(name: str, dice: Random) -> Profile:
    ops: Any = torch.ops.quantized
    n, transposed = _rank(name), "transpose" in name
    floating = "dynamic" in name
    bias = torch.rand(4)
    if "conv" in name:
        x = torch.rand(1, 4, *[6] * n)
        weight = torch.quantize_per_tensor(torch.rand(4, 4, *[3] * n), 0.1, 0, torch.qint8)
        rest = [[1] * n, [0] * n, *([[0] * n] if transposed else []), [1] * n, 1]
        packed = getattr(ops, f"conv{'_transpose' if transposed else ''}{n}d_prepack")(weight, bias, *rest)
        shape = {"stride": [1] * n, "padding": [0] * n, "dilation": [1] * n, "output_padding": [0] * n, "groups": 1}
    else:
        x, weight, shape = torch.rand(2, 4), torch.quantize_per_tensor(torch.rand(4, 4), 0.1, 0, torch.qint8), {}
        packed = ops.linear_prepack_fp16(torch.rand(4, 4), bias) if "fp16" in name else ops.linear_prepack(weight, bias)
    quantized = x if floating or "fp16" in name else torch.quantize_per_tensor(x, 0.1, 0, torch.quint8)
    if "fp16" in name and "prepack" in name:
        weight = torch.rand(4, 4)
    return {
        **shape, "X": quantized, "qx": quantized, "input": quantized, "x": quantized, "weight": weight, "W": weight, "B": bias,
        "bias": bias, "packed_params": packed, "packed_weight": packed, "W_prepack": packed, "w_prepack": packed,
        "packed_weights": packed, "output_scale": 0.1, "output_zero_point": 0, "negative_slope": 0.1, "reduce_range": False,
        "accum": torch.quantize_per_tensor(torch.rand(1, 4, *[4] * n), 0.1, 0, torch.quint8), "extra": torch.rand(1),
    }  # fmt: skip


def _sparse(name: str, dice: Random) -> Profile:
    square = torch.rand(2, 2)
    coo, csr = square.to_sparse(), square.to_sparse_csr()
    layout = torch.sparse_csc if "csc" in name else torch.sparse_bsr if "bsr" in name else torch.sparse_csr
    ends, inner = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    mine = dice.choice((coo, csr))
    return {
        "self": mine, "sparse": mine, "mat1": dice.choice((mine, square)), "mat2": square.clone(), "dense": square.clone(),
        "other": dice.choice((mine.clone(), square)), "mask": mine.clone(), "grad": dice.choice((mine.clone(), square)), "A": csr,
        "indices": torch.tensor([[0, 1], [1, 0]]), "values": torch.rand(2), "size": [2, 2], "compressed_indices": ends,
        "plain_indices": inner, "crow_indices": ends, "col_indices": inner, "ccol_indices": ends, "row_indices": inner,
        "layout": layout, "dim": dice.choice((0, 1, [0])) if "sum" in name else 1, "half_to_float": False,
        "sparse_dim": 2, "dense_dim": 0,
        "input": dice.choice((square, csr)), "output": mine.clone(), "grad_output": dice.choice((mine.clone(), square)),
        "reduce": "sum", "diagonals": torch.rand(2, 3), "offsets": torch.tensor([0, 1]), "shape": [3, 3], "is_coalesced": True,
    }  # fmt: skip


def _sequences(name: str, dice: Random) -> Profile:
    return {
        "input": torch.rand(5, 2, 3), "lengths": torch.tensor([5, 3]), "batch_first": False, "grad": torch.rand(8, 3),
        "input_size": [5, 2, 3], "batch_sizes": torch.tensor([2, 2, 2, 1, 1]), "data": torch.rand(8, 3), "padding_value": 0.0,
        "total_length": 5,
    }  # fmt: skip


FAMILIES: tuple[tuple[str, Callable[[str, Random], Profile]], ...] = (
    (r"^_?quantized\..*(conv|linear)|^onednn\.q(conv|linear)", _packed),
    (r"conv", _convolution),
    (r"lstm|gru|rnn", _recurrent),
    (r"embedding", _embedding),
    (r"upsample|interpolate", _upsample),
    (r"fused_(adam|sgd|adagrad)", _optimizer),
    (r"_foreach_", _foreach),
    (r"grid_sampler", _grid),
    (r"pool", _pool),
    (r"_pad\d", _pad),
    (r"norm", _norm),
    (r"loss", _loss),
    (r"quant|q_per_channel|int_repr|moving_avg_obs", _quantizing),
    (r"sparse|spmm|hspmm|smm|spdiags|coalesce|csr|_copy_from", _sparse),
    (r"pack_padded|pad_packed", _sequences),
)  # fmt: skip


def profile_of(name: str, dice: Random) -> Profile:
    """Return values by name of argument for an operator; none where it belongs to no family."""
    for pattern, make in FAMILIES:
        if re.search(pattern, name):
            return make(name, dice)
    return {}
