"""What schemas do not say: operators that write, alias or draw although neither schema nor tag tells.

One idea: a table for each kind of lie, and nothing else.  They were found by running every overload of the installed torch
(``tests/upstream/audit_effects.py``), which also holds them: what an operator does and is not said to do is a finding there.
"""

from __future__ import annotations

__all__ = ["DRAWS_NOTHING", "SILENT_ALIASES", "SILENT_DRAWS", "SILENT_WRITES", "UNKNOWN"]

STATISTICS = ("running_mean", "running_var")

SILENT_WRITES: dict[str, tuple[tuple[str, ...], str | None]] = {
    # operator: (arguments it writes, the flag that switches the write off when it is False)
    "aten::batch_norm": (STATISTICS, "training"),
    "aten::native_batch_norm": (STATISTICS, "training"),
    "aten::_batch_norm_impl_index": (STATISTICS, "training"),
    "aten::cudnn_batch_norm": (STATISTICS, "training"),
    "aten::miopen_batch_norm": (STATISTICS, "training"),
    "aten::instance_norm": (STATISTICS, "use_input_stats"),
    "aten::batch_norm_update_stats": (STATISTICS, None),
    "aten::batch_norm_gather_stats": (STATISTICS, None),
    "aten::batch_norm_gather_stats_with_counts": (STATISTICS, None),
    "quantized::relu6": (("qx",), "inplace"),
    "aten::_no_grad_embedding_renorm_": (("weight",), None),
    "aten::cov": (("self",), None),  # of a single observation with weights
}

SILENT_ALIASES = frozenset(
    {
        "aten::einsum", "aten::broadcast_tensors", "aten::meshgrid", "aten::type_as", "aten::sum_to_size",
        "aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::unsafe_chunk", "aten::pad",
        "aten::flatten_dense_tensors", "aten::unflatten_dense_tensors", "aten::native_dropout", "aten::upsample_nearest2d",
        "aten::dequantize", "aten::to_dense", "aten::to_dense_backward", "aten::to_mkldnn_backward", "aten::data", "aten::lift",
        "aten::atleast_1d", "aten::atleast_2d", "aten::atleast_3d", "aten::cumprod_backward", "aten::gather_backward",
        "aten::_gather_sparse_backward", "aten::embedding_sparse_backward",
        "aten::_embedding_bag_sparse_backward", "aten::_no_grad_embedding_renorm_", "aten::histogramdd", "aten::sorted",
        "aten::set", "aten::set_", "aten::_add_batch_dim", "aten::_remove_batch_dim", "aten::_to_cpu", "aten::_pack_sequence",
        "aten::_saturate_weight_to_fp16", "aten::_nested_compute_contiguous_strides_offsets",
        "aten::_cast_Byte", "aten::_cast_Char", "aten::_cast_Double", "aten::_cast_Float", "aten::_cast_Half",
        "aten::_cast_Int", "aten::_cast_Long", "aten::_cast_Short",
        "aten::to_sparse", "aten::_to_sparse", "aten::to_sparse_csr", "aten::_to_sparse_csr", "aten::to_sparse_csc",
        "aten::_to_sparse_csc", "aten::to_sparse_bsr", "aten::_to_sparse_bsr", "aten::to_sparse_bsc", "aten::_to_sparse_bsc",
        "aten::sparse_coo_tensor", "aten::_sparse_coo_tensor_unsafe", "aten::_sparse_coo_tensor_with_dims_and_tensors",
        "aten::sparse_compressed_tensor", "aten::_sparse_compressed_tensor_unsafe", "aten::sparse_csr_tensor",
        "aten::_sparse_csr_tensor_unsafe", "aten::sparse_csc_tensor", "aten::_sparse_csc_tensor_unsafe",
        "aten::sparse_bsr_tensor", "aten::_sparse_bsr_tensor_unsafe", "aten::sparse_bsc_tensor",
        "aten::_sparse_bsc_tensor_unsafe",
        "aten::_foobar", "aten::_test_optional_filled_intlist", "aten::_test_optional_floatlist",
        "aten::_test_optional_intlist", "aten::_test_parallel_materialize", "aten::_test_string_default",
        "inductor::_alloc_from_pool", "inductor::_reinterpret_tensor", "onnx::Reshape", "prims::device_put",
        "quantized::dropout", "quantized::relu6",
    }
)  # fmt: skip
"""Operators that may hand back (a view of) an argument."""

SILENT_DRAWS = frozenset(
    {
        "aten::_no_grad_normal_", "aten::_no_grad_uniform_", "debugprims::load_tensor", "aten::quantized_lstm",
        "aten::quantized_gru", "inductor_prims::inductor_reserve_rng_state",
    }
)  # fmt: skip
"""Operators that draw from the global generator without the tag ``nondeterministic_seeded``; the last three are not run in the
audit, and have a probability of dropout or move the generator on."""

DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
RRELUS = ("", "_", "_with_noise", "_with_noise_", "_with_noise_functional")
TRAIN, TRAINING, DROPOUT, DROPOUT_P, P = ("train", False), ("training", False), ("dropout", 0.0), ("dropout_p", 0.0), ("p", 0.0)

DRAWS_NOTHING: dict[str, tuple[tuple[str, bool | float], ...]] = {
    # operator with the tag: (argument, literal under which it draws nothing); each was run under it, and drew nothing
    **dict.fromkeys([f"aten::{name}" for name in DROPOUTS], (TRAIN, P)),
    **dict.fromkeys([f"aten::{name}_" for name in DROPOUTS], (TRAIN, P)),
    "aten::native_dropout": (TRAIN,),  # p=0.0 draws a mask all the same
    **dict.fromkeys([f"aten::rrelu{end}" for end in RRELUS], (TRAINING,)),
    **dict.fromkeys([f"aten::{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")], (TRAIN, DROPOUT)),
    "aten::scaled_dot_product_attention": (DROPOUT_P,),
    "aten::_scaled_dot_product_attention_math": (DROPOUT_P,),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (DROPOUT_P,),
    "aten::_fused_sdp_choice": (DROPOUT_P,),
}

UNKNOWN = frozenset({"aten::set_data", "inductor::accumulate_grad_", "inductor::resize_storage_bytes_"})
"""Operators that replace what a tensor is made of, or touch what hangs on it."""
