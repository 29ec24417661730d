"""What we say of torch's operators, compared with what they do, and with what torch itself says elsewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.effects.declared import COMMUNICATION
from purefx.ir.effects.registered import NAMESPACES, effects_of
from purefx.ir.effects.schema import (
    DRAWS_NOTHING,
    FUNCTIONAL,
    PROCESS_READS,
    RAW,
    SILENT_ALIASES,
    SILENT_DRAWS,
    SILENT_WRITES,
)
from purefx.ir.operators import DENIED_NAMESPACES, op_of
from purefx.ir.torch_private import (
    OpOverload,
    in_dispatcher,
    is_effectful,
    register_all,
    resolve_operator,
    schema_of,
    side_effectful,
)

from .audit_effects import Seen, observe, overloads

if torch.distributed.is_available():  # they register operators, and mark some of them as impure
    for name in ("_functional_collectives", "_symmetric_memory"):
        import_module(f"torch.distributed.{name}")

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="this torch has no collectives"
)


def by_schema() -> dict[str, list[Any]]:
    """Return the overloads of each operator that can be run."""
    found: dict[str, list[Any]] = {}
    for target in overloads():
        found.setdefault(schema_of(target).name, []).append(target)
    return found


def test_no_overload_does_more_than_is_said() -> None:
    """A few calls of the overloads of the tables and of a third of all others; ``make audit-effects`` has all."""
    done = subprocess.run(  # threads of this process would not live on in forked children
        [sys.executable, "-m", "tests.upstream.audit_effects", "--short"],
        cwd=Path(__file__).parents[2], env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ran = re.search(r"^0 findings, (\d+) of \d+ overloads ran", done.stdout, re.MULTILINE)
    assert ran is not None, done.stdout
    assert int(ran[1]) > 600, "an audit that runs nothing finds nothing"


def test_the_audit_sees_lies() -> None:
    """An alias, a write and a draw that nobody was told of are seen; a true schema leaves nothing to say."""
    x, mean, var = torch.rand(2, 3), torch.rand(3), torch.rand(3)
    aten: Any = torch.ops.aten
    assert observe(aten.lift.default, [x], {}).aliases == {"self"}
    assert observe(aten.batch_norm_update_stats.default, [x, mean, var, 0.5], {}).writes == {
        "running_mean",
        "running_var",
    }
    assert observe(aten.bernoulli_.float, [x, 0.0], {}).draws
    assert observe(aten.neg.default, [x], {}) == Seen(runs=1)
    assert observe(aten.mul.Tensor, [torch.tensor(float("nan")), x], {}) == Seen(runs=1), (
        "NaN is itself"
    )


TENSORS: dict[str, Callable[[], list[Any]]] = {
    "gru": lambda: [
        torch.rand(5, 2, 3),
        torch.rand(2, 2, 4),
        recurrent(torch.nn.GRU),
        True,
        2,
        0.5,
        True,
        False,
        False,
    ],
    "lstm": lambda: [
        torch.rand(5, 2, 3),
        [torch.rand(2, 2, 4)] * 2,
        recurrent(torch.nn.LSTM),
        True,
        2,
        0.5,
        True,
        False,
        False,
    ],
    "rnn_tanh": lambda: [
        torch.rand(5, 2, 3),
        torch.rand(2, 2, 4),
        recurrent(torch.nn.RNN),
        True,
        2,
        0.5,
        True,
        False,
        False,
    ],
    "rnn_relu": lambda: [
        torch.rand(5, 2, 3),
        torch.rand(2, 2, 4),
        recurrent(torch.nn.RNN),
        True,
        2,
        0.5,
        True,
        False,
        False,
    ],
    "scaled_dot_product_attention": lambda: [*[torch.rand(1, 2, 4, 8)] * 3, None, 0.5],
    "_scaled_dot_product_attention_math": lambda: [*[torch.rand(1, 2, 4, 8)] * 3, None, 0.5],
    "_fused_sdp_choice": lambda: [*[torch.rand(1, 2, 4, 8)] * 3, None, 0.5],
    "_scaled_dot_product_flash_attention_for_cpu": lambda: [*[torch.rand(1, 2, 4, 8)] * 3, 0.0],
    "native_dropout": lambda: [torch.rand(2, 3), 0.5, True],
    "rrelu": lambda: [torch.rand(2, 3) - 0.5, 0.1, 0.3, True],
    "rrelu_with_noise": lambda: [torch.rand(2, 3) - 0.5, torch.rand(2, 3), 0.1, 0.3, True],
}


def recurrent(kind: Any) -> list[torch.Tensor]:
    """Return the weights of two layers."""
    return [weight.detach() for weight in kind(3, 4, 2).parameters()]


@pytest.mark.parametrize(
    ("name", "flag", "value"),
    [(name, *flag) for name, flags in DRAWS_NOTHING.items() for flag in flags],
)
def test_literals_that_switch_a_draw_off(name: str, flag: str, value: bool | float) -> None:
    """Each operator is run under its literal, and draws nothing; our effects say so of that call."""
    short = name.removeprefix("aten::")
    make = (
        TENSORS.get(short)
        or TENSORS.get(short.removesuffix("_functional").rstrip("_"))
        or (lambda: [torch.rand(2, 3), 0.5, True])
    )
    target = resolve_operator(
        "aten", short, "input" if short in ("gru", "lstm", "rnn_tanh", "rnn_relu") else "default"
    )
    assert target is not None
    names = [argument.name for argument in schema_of(target).arguments]
    args = make()
    args[names.index(flag)] = value
    assert not observe(target, args, {}).draws
    effects = effects_of(target)
    assert effects.random
    assert any(switch.spares(tuple(args), ()) for switch in effects.random_unless)
    if short not in ("_fused_sdp_choice", "_scaled_dot_product_flash_attention_for_cpu"):
        assert observe(target, make(), {}).draws, "otherwise the literal would prove nothing"


def test_what_drops_draws_whether_it_was_run_or_not() -> None:
    """Tag or table: nothing that takes a probability of dropout or a generator is taken for pure, on whatever device it runs."""
    words = ("dropout", "dropout_p", "generator")
    drops = [
        target
        for target in overloads()
        if any(argument.name in words for argument in schema_of(target).arguments)
    ]
    assert len(drops) > 50
    quiet = [
        str(target)
        for target in drops
        if not effects_of(target).random and "backward" not in str(target)
    ]
    assert quiet == [], "a backward pass is given what was drawn"


ONLY_ELSEWHERE = {
    "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::batch_norm_gather_stats",
    "aten::batch_norm_gather_stats_with_counts", "quantized::relu6", "aten::cov", "aten::_no_grad_embedding_renorm_",
    "fsdp::all_gather_copy_in", "ao::wait_tensor",
}  # fmt: skip
"""Operators of the table that CPUs do not run, or not on what is drawn here (``tests/communication`` has the last two)."""


def test_operators_of_the_tables_lie() -> None:
    """What is in the tables of writes and draws is there because it happens, in this torch, and no schema says so."""
    known = by_schema()
    x, mean, var = torch.rand(2, 3), torch.rand(3), torch.rand(3)
    for name in SILENT_WRITES.keys() - ONLY_ELSEWHERE:
        target = (
            known[name][0]
            if name != "aten::batch_norm_update_stats"
            else torch.ops.aten.batch_norm_update_stats.default
        )
        flat = {
            "mean": mean,
            "var": var,
            "running_mean": mean,
            "running_var": var,
            "momentum": 0.5,
            "eps": 1e-5,
        }
        given = {
            **flat,
            "input": x.T[None] if "instance" in name else x,
            "training": True,
            "use_input_stats": True,
        }
        given |= {"weight": torch.ones(3), "bias": torch.zeros(3), "cudnn_enabled": False}
        args = [given[argument.name] for argument in schema_of(target).arguments]
        assert observe(target, args, {}).writes == {"running_mean", "running_var"}, name
    for name in SILENT_DRAWS & {"aten::_no_grad_normal_", "aten::_no_grad_uniform_"}:
        target = known[name][0]
        assert observe(target, [torch.rand(3), 0.0, 1.0], {}).draws, name
        assert torch.Tag.nondeterministic_seeded not in target.tags, f"{name}: torch says so by now"


def test_aliases_of_the_table_name_operators() -> None:
    """Every name is one of an operator, here or in an older torch; what it gives may live in any tensor that it takes."""
    known = by_schema()
    assert len(SILENT_ALIASES & known.keys()) > len(SILENT_ALIASES) - 10
    for name in SILENT_ALIASES & known.keys():
        for target in known[name]:
            arguments = schema_of(target).arguments
            tensors = {
                arg.name
                for arg in arguments
                if any(word in str(arg.type) for word in ("Tensor", "Any"))
            }
            assert {at.name for at in effects_of(target).aliases} == tensors, target


IMPURE = {
    "_c10d_functional.batch_p2p_ops.default", "_c10d_functional.irecv.default", "_c10d_functional.isend.default",
    "_c10d_functional.wait_tensor.default", "_c10d_functional.wait_tensors.default",
    "ao.wait_tensor.default", "aten._assert_async.msg", "aten._assert_scalar.default",
    "aten._assert_tensor_metadata.default", "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
    "inductor.accumulate_grad_.default", "inductor.resize_storage_bytes_.default", "mempool.begin.default",
    "mempool.end.default", "prims._sink_tokens.default",
    "profiler._record_function_enter.default", "profiler._record_function_enter_new.default",
    "profiler._record_function_exit._RecordFunction",
}  # fmt: skip
"""The overloads that torch.fx never removes as dead, in the torch that was looked at."""


def test_what_torch_keeps_does_something_here() -> None:
    """Whatever is in torch's own table has an effect; a new name is to be looked at: is the effect that it gets the right one?"""
    table = [
        target
        for target in side_effectful()
        if isinstance(target, OpOverload) and target.namespace in NAMESPACES
    ]
    assert [str(target) for target in table if not effects_of(target).acts] == []
    # Tracing tokens adds the operators that are registered as effectful; importing Dynamo adds those of streams and
    # of fsdp, importing its pipelines that of pippy.
    others = [
        target
        for target in table
        if not is_effectful(target) and target.namespace not in ("streams", "fsdp", "pippy")
    ]
    assert {str(target) for target in others} <= IMPURE
    assert [
        str(one)
        for one in side_effectful()
        if not isinstance(one, OpOverload) and not effects_of(one).acts
    ] == []


def test_every_operator_that_communicates_is_in_order() -> None:
    """Of every namespace of collectives; what waits completes, and two look up or wrap."""
    names = [
        name.replace("::", ".").partition(".") for name in torch._C._dispatch_get_all_op_names()
    ]
    found = [
        target
        for space, _, name in names
        if space in FUNCTIONAL | RAW
        and (
            target := resolve_operator(
                space, name.partition(".")[0], name.partition(".")[2] or "default"
            )
        )
    ]
    assert len(found) > 60
    others = {str(target) for target in found if effects_of(target).domain != COMMUNICATION}
    waits = {str(target) for target in found if effects_of(target).completes}
    assert waits == {str(target) for target in found if "wait_tensor" in str(target)}
    assert len(waits) > 1
    assert others - waits <= {
        "_c10d_functional._wrap_tensor_autograd.default",
        "_dtensor.mesh_get_process_group.default",
    }


def everything() -> list[Any]:
    """Return the overloads of torch's namespaces that are registered here, those of collectives too."""
    names = [
        (schema.name.partition("::"), schema.overload_name or "default")
        for schema in torch._C._jit_get_all_schemas()
    ]
    found = [
        resolve_operator(space, name, overload)
        for (space, _, name), overload in names
        if space in NAMESPACES
    ]
    return [target for target in found if target is not None]


def test_what_waits_completes_an_argument_or_is_ordered() -> None:
    """Every operator of this torch with the word in its name; streams wait in order."""
    register_all()
    effects = {
        str(one): effects_of(one)
        for one in everything()
        if "wait" in str(one) and in_dispatcher(one)
    }
    assert effects.keys() >= {"_c10d_functional.wait_tensor.default", "streams.wait_event.default"}
    passed = [
        name
        for name, does in effects.items()
        if not (does.completes or does.ordered or does.unknown)
    ]
    assert passed == []


def test_what_reads_the_process_is_neither_merged_nor_dropped() -> None:
    """What has no arguments and returns no tensor returns a device, a mode or a capability, which others set."""
    schemas = {one: schema_of(one) for one in everything()}
    alone = [
        one
        for one, schema in schemas.items()
        if not (schema.arguments or "Tensor" in str(schema).rpartition("->")[2])
    ]
    readers = [
        *alone,
        *[
            one
            for one, schema in schemas.items()
            if schema.name in PROCESS_READS or one.namespace == "cuda"
        ],
    ]
    assert len(readers) > 10
    assert [str(target) for target in readers if not effects_of(target).ordered] == []
    reads = op_of(
        next(target for target in readers if str(target) == "aten._nnpack_available.default")
    )
    nodes = (px.Node("a", reads, ()), px.Node("b", reads, ()))
    program = px.Program.of({"": px.Graph((), nodes, (px.Ref("a"), px.Ref("b")))})
    assert px.eliminate_common_subexpressions(program) is program


LATE = {"semi_structured", "triton"}
"""Namespaces that torch registers when their kernels first run on a GPU."""


def test_namespaces_of_torch_are_known() -> None:
    """The namespaces that torch and its modules register are in our lists.

    A file may name operators of any allowed namespace, whatever was imported before: a fresh process finds them.
    """
    code = """
import importlib, torch
def said():
    print(*{schema.name.partition("::")[0] for schema in torch._C._jit_get_all_schemas()})
said()
from purefx.ir.torch_private import LATE_NAMESPACES
for module in set(LATE_NAMESPACES.values()):
    importlib.import_module(module)
said()
"""
    fresh = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True
    )
    registered, later = (set(line.split()) for line in fresh.stdout.splitlines())
    assert {"aten", "prims", "quantized"} <= registered & NAMESPACES
    assert registered - NAMESPACES == set(), "a new namespace of torch?"
    written = registering_modules().keys()
    assert written - NAMESPACES == set(), "a new namespace of torch?"
    assert written - DENIED_NAMESPACES.keys() - LATE - later == set()


def registering_modules() -> dict[str, list[str]]:
    """Return the namespaces that sources of the installed torch register operators in, each with those files."""
    written = re.compile(
        r"""(?:\bLibrary|custom_op|\bdefine|triton_op|_def)\(\s*["'](\w+)(?:::\w+[^"']*)?["']"""
    )
    words = ("Library(", "custom_op(", "define(", "triton_op(", "_def(")
    home, found = Path(torch.__file__).parent, dict[str, list[str]]()
    for path in home.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        # A search for words is twenty times as fast as that for the pattern.
        for space in written.findall(text) if any(word in text for word in words) else ():
            if path.parent.name != "_internal" and space not in EXAMPLES:
                found.setdefault(space, []).append(str(path.relative_to(home)))
    return found


EXAMPLES = ("_", "example", "mylib", "mylibrary", "mymodule")
"""Namespaces of examples in docstrings of torch."""
