"""Effects of an operator from its schema and tags, completed by tables.

The tables list operators that silently write, alias, draw random numbers or communicate; ``make audit`` compares them with
actual runs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..torch_private import is_effectful, schema_of, side_effectful
from .declared import COMMUNICATION, PURE, ArgAt, Effects, Unless

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
    "aten::cov": (("self",), None),  # for a single observation with weights
    "fsdp::all_gather_copy_in": (("all_gather_output",), None),
    "ao::wait_tensor": (("keepalive",), None),  # its memory is freed
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
        "ao::offload", "ao::reload", "fsdp::all_gather_copy_in",
        "inductor::_alloc_from_pool", "inductor::_reinterpret_tensor", "onnx::Reshape", "prims::device_put",
        "quantized::dropout", "quantized::relu6",
    }
)  # fmt: skip
"""Operators that may return an argument or a view of it, or are still reading it when they return (``WAITS``)."""

SILENT_DRAWS = frozenset(
    {
        "aten::_no_grad_normal_", "aten::_no_grad_uniform_", "debugprims::load_tensor", "aten::quantized_lstm",
        "aten::quantized_gru", "inductor_prims::inductor_reserve_rng_state",
    }
)  # fmt: skip
"""Operators that draw from the global generator without the tag ``nondeterministic_seeded``.  The audit does not run the last
three; they have a probability of dropout or advance the generator."""

DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
RRELUS = ("", "_", "_with_noise", "_with_noise_", "_with_noise_functional")
TRAIN, TRAINING, DROPOUT, DROPOUT_P, P = (
    ("train", False),
    ("training", False),
    ("dropout", 0.0),
    ("dropout_p", 0.0),
    ("p", 0.0),
)

DRAWS_NOTHING: dict[str, tuple[tuple[str, bool | float], ...]] = {
    # operator with the tag: (argument, literal with which it draws nothing), as the audit observed
    **dict.fromkeys([f"aten::{name}" for name in DROPOUTS], (TRAIN, P)),
    **dict.fromkeys([f"aten::{name}_" for name in DROPOUTS], (TRAIN, P)),
    "aten::native_dropout": (TRAIN,),  # p=0.0 still draws a mask
    **dict.fromkeys([f"aten::rrelu{end}" for end in RRELUS], (TRAINING,)),
    **dict.fromkeys(
        [f"aten::{name}" for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")], (TRAIN, DROPOUT)
    ),
    "aten::scaled_dot_product_attention": (DROPOUT_P,),
    "aten::_scaled_dot_product_attention_math": (DROPOUT_P,),
    "aten::_scaled_dot_product_flash_attention_for_cpu": (DROPOUT_P,),
    "aten::_fused_sdp_choice": (DROPOUT_P,),
}

UNKNOWN = frozenset(
    {
        "aten::set_data",
        "aten::shallow_copy_data_",
        "inductor::accumulate_grad_",
        "inductor::resize_storage_bytes_",
    }
)
"""Operators that replace the storage or metadata of a tensor, or modify its attributes."""

FUNCTIONAL = frozenset(
    {"_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "cplib"}
)
"""Namespaces of collectives that return a tensor, awaited or not."""

RAW = frozenset({"c10d", "symm_mem"})
"""Namespaces of collectives that write to their operands despite their schema, and return a handle or nothing."""

SILENT = frozenset({"mesh_get_process_group"})
"""Operators that only look up a group."""

GROUP = "group_name"
"""The argument that names the process group.  Older operators list ranks, and blocking ones name the argument otherwise: both
are ordered with every group."""

WAITS = {
    "_c10d_functional::wait_tensor": "tensor",
    "_c10d_functional::wait_tensors": "tensors",
    "c10d_functional::wait_tensor": "self",
    "ao::wait_tensor": "tensor",
}
"""Operators that wait for a collective or for a copy between devices, and the argument that they wait for."""

PROCESS_READS = frozenset(
    {
        "aten::_cufft_get_plan_cache_max_size",
        "aten::_cufft_get_plan_cache_size",
        "aten::get_autocast_dtype",
        "aten::initial_seed",
    }
)
"""Operators whose result depends on the settings of the process, besides those without arguments.

Like all of ``cuda`` (current devices and streams) they stay ordered with operators that may change the settings.
"""

MESSAGES = frozenset({"isend", "irecv", "batch_p2p_ops"})
"""Messages between two processes; each operator returns its operand itself."""

FILLS = {"irecv": ("tensor", "self"), "batch_p2p_ops": ("tensors",)}
"""The arguments that receive a message."""


Arguments = list[tuple[ArgAt, Any]]
"""The arguments of an operator with their entries in the schema."""


@functools.cache
def effects_of_schema(target: Any) -> Effects:
    """Return the effects of an operator overload by its schema and tags, completed by our tables.

    >>> effects_of_schema(torch.ops.aten.add_.Tensor).writes
    (ArgAt(index=0, name='self'),)
    """
    schema = schema_of(target)
    arguments: Arguments = [
        (ArgAt(index, argument.name), argument) for index, argument in enumerate(schema.arguments)
    ]
    space, _, name = schema.name.partition("::")
    if space in FUNCTIONAL | RAW and name not in SILENT:
        return _of_communication(schema, arguments)
    writes = [at for at, argument in arguments if _is_written(argument)]
    names, flag = SILENT_WRITES.get(schema.name, ((), None))
    silent = [at for at, _ in arguments if at.name in names]
    tagged = torch.Tag.maybe_aliasing_or_mutating in target.tags
    may_alias = schema.name in SILENT_ALIASES or (tagged and not silent)
    random = torch.Tag.nondeterministic_seeded in target.tags or schema.name in SILENT_DRAWS
    kept = (
        not writes and target in side_effectful()
    )  # torch.fx never removes it; a write orders it already
    effects = Effects(
        writes=tuple(dict.fromkeys((*writes, *silent))),
        writes_unless=()
        if writes
        else tuple([Unless(at, False, None) for at, _ in arguments if at.name == flag]),  # noqa: FBT003
        returns=_returned_arguments(schema, arguments),
        aliases=_aliased_arguments(schema, arguments, may_alias=may_alias),
        random=random,
        random_unless=_no_draw(schema, arguments) if random else (),
        ordered=not schema.returns or is_effectful(target) or kept or _reads_process(schema),
        unknown=schema.name in UNKNOWN,
        completes=tuple([at for at, _ in arguments if at.name == WAITS.get(schema.name)]),
    )
    return PURE if effects == PURE else effects


def _of_communication(schema: Any, arguments: Arguments) -> Effects:
    space, _, name = schema.name.partition("::")
    tensors = tuple([at for at, argument in arguments if "Tensor" in str(argument.type)])
    if schema.name in WAITS:
        return Effects(aliases=tensors, completes=tensors)
    if name == "_wrap_tensor_autograd":
        return Effects(aliases=tensors)
    written = tuple(
        [
            at
            for at, argument in arguments
            if at.name in FILLS.get(name, ()) or _is_written(argument)
        ]
    )
    return Effects(
        writes=written,
        aliases=tensors,
        sends=tensors if space in FUNCTIONAL and name not in MESSAGES and not written else (),
        domain=COMMUNICATION,
        group=next((at for at, _ in arguments if at.name == GROUP), None),
        message=name in MESSAGES,
        unknown=space in RAW,
    )


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _reads_process(schema: Any) -> bool:
    # Without arguments, the result depends on the process: a device, a mode, a capability.
    if schema.name in PROCESS_READS or schema.name.startswith("cuda::"):
        return True
    return not schema.arguments and not any(
        "Tensor" in str(result.type) for result in schema.returns
    )


def _returned_arguments(schema: Any, arguments: Arguments) -> tuple[ArgAt | None, ...]:
    # `Tensor(a!) self -> Tensor(a!)`: the dispatcher returns the same tensor object.
    by_set = {
        frozenset(argument.alias_info.before_set): at
        for at, argument in arguments
        if argument.alias_info is not None
    }
    infos = [result.alias_info for result in schema.returns]
    found = [
        by_set.get(frozenset(info.before_set)) if info is not None and info.is_write else None
        for info in infos
    ]
    return tuple(found) if any(at is not None for at in found) else ()


def _aliased_arguments(schema: Any, arguments: Arguments, *, may_alias: bool) -> tuple[ArgAt, ...]:
    infos = [result.alias_info for result in schema.returns if result.alias_info is not None]
    shared = {name for info in infos for name in info.before_set | info.after_set}
    found: list[ArgAt] = []
    for at, argument in arguments:
        info = argument.alias_info
        # `split(Tensor(a -> *) self) -> Tensor(a)[]`: aliasing of the items of a list is stated by the star only, not on the
        # result.
        declared = info is not None and (
            "*" in info.after_set or bool(shared & (info.before_set | info.after_set))
        )
        if declared or (
            may_alias and any(word in str(argument.type) for word in ("Tensor", "Any"))
        ):
            found.append(at)
    return tuple(found)


def _no_draw(schema: Any, arguments: Arguments) -> tuple[Unless, ...]:
    by_name = {at.name: (at, argument) for at, argument in arguments}
    return tuple(
        [
            Unless(at, value, argument.default_value if argument.has_default_value() else None)
            for name, value in DRAWS_NOTHING.get(schema.name, ())
            for at, argument in ([by_name[name]] if name in by_name else [])
        ]
    )
