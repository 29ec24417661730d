"""A program from outside names operators of the allow-list, and nothing else; none of them leads to the interpreter."""

from __future__ import annotations

import builtins
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import purefx as px
from purefx.ir.callables import op_name
from purefx.ir.effects.registered import NAMESPACES
from purefx.ir.operators import (
    DENIED,
    DENIED_NAMESPACES,
    HIGHER_ORDER,
    PLAIN_FUNCTIONS,
    allowed,
    denied,
    registered,
)
from purefx.ir.store import container
from purefx.ir.torch_private import register_all
from tests.models import flat

CALLED: list[str] = []


def signed(body: str) -> str:
    """Return a program of one tensor as text, with the given nodes; `y` is what it gives."""
    return f"""program {{
takes {{
 user x: f32[2]
}}
gives {{
 user
}}
names (x)
in_spec ((*,), {{}})
out_spec *
modules {{
 "": "M"
}}
graph @""(x) {{
{body}
return (y,)
}}
}}"""


WALK = """
 b = "builtins.getattr"(x, "backward")
 g = "builtins.getattr"(b, "__globals__")
 i = operator.getitem(g, "__builtins__")
 f = operator.getitem(i, "__import__")
 m = higher_order.wrap(f, "os")
 s = "builtins.getattr"(m, "system")
 y = higher_order.wrap(s, "touch MARKER")"""
"""The way from a tensor to a shell, as it was taken."""


def ways(marker: Path) -> dict[str, str]:
    """Return bodies that would make a marker, read a file or reach an object, if what they name could be named."""
    cmd = f"touch {marker}"
    return {
        "getattr": WALK.replace("MARKER", str(marker)),
        "method of anything": f' f = method.__reduce_ex__(x, 4)\n y = method.system(f, "{cmd}")',
        "numpy": f' n = tensor.numpy(x)\n y = method.tofile(n, "{marker}")',
        "format": ' y = tensor.format("{0.__class__.__init__.__globals__}", x)',
        "eval": f' y = builtins.eval("__import__(\'os\').system(\'{cmd}\')")',
        "exec": f' y = builtins.exec("import os; os.system(\'{cmd}\')")',
        "import": ' y = builtins.__import__("os")',
        "system": f' y = os.system("{cmd}")',
        "attrgetter": ' y = operator.attrgetter("__class__")',
        "methodcaller": f' y = operator.methodcaller("system", "{cmd}")',
        "call": " y = operator.call(x)",
        "setitem": " y = operator.setitem(x, 0, 1)",
        "wrap": ' y = higher_order.wrap(op("aten.relu.default"), x)',
        "format string": ' z = higher_order.print("{x.__class__.__mro__}", x=x)\n y = aten.relu.default(x)',
        "from_file": f' z = aten.from_file.default("{marker}", True, 4)\n y = aten.relu.default(x)',
        "save": f' z = aten.save.default(x, "{marker}")\n y = aten.relu.default(x)',
        "load": ' y = torch.load("/etc/passwd")',
        "torch.save": f' y = torch.save(x, "{marker}")',
        "load_tensor": f' y = debugprims.load_tensor.default("{marker}", [2], [1], dtype=torch.float32, device=device("cpu"))',
        "prints": ' z = aten._print.default("hello")\n y = aten.relu.default(x)',
        "set_data": " z = aten.set_data.default(x, x)\n y = aten.relu.default(x)",
        "attribute of a subclass": ' y = export.access_subclass_inner_tensor.default(x, "__class__")',
        "rpc": " y = prim.rpc_sync.default()",
        "raw memory": " y = inductor._reinterpret_tensor.default(x, [1000000], [1], 0)",
        "other processes": ' y = _c10d_functional.all_reduce.default(x, "sum", "0")',
        "factorial": " n = math.factorial(100000000)\n y = aten.relu.default(x)",
    }  # fmt: skip


WAYS = list(ways(Path("m")))

USES: dict[str, Callable[[px.Program], object]] = {
    "lower": lambda program: px.lower(program)(torch.ones(2)),
    "interpreter": lambda program: px.lower(program, to="interpreter")(torch.ones(2)),
    "verify": lambda program: px.verify(program, infer=True),
    "infer": px.infer,
    "stats": px.stats,
    "to_ep": px.to_ep,
    "transform": lambda program: px.lower(px.transform(program))(torch.ones(2)),
}


@pytest.mark.parametrize("way", WAYS)
def test_texts_with_bad_intent_do_nothing(
    way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """They can be read and looked at; whatever evaluates them refuses, in an error of ours, and nothing happens."""
    marker = tmp_path / "marker"
    try:
        program = px.parse(signed(ways(marker)[way]))
    except px.PurefxError:
        return
    assert any(isinstance(node.do, px.Op) and node.do.target is None for _, node in program.nodes())
    for name, use in USES.items():
        try:
            use(program)
        except px.PurefxError:
            continue
        assert name in ("verify", "infer", "stats"), name
    assert not marker.exists()
    assert capfd.readouterr().out == ""
    with pytest.raises(px.errors.UnsupportedProgram, match="operators have no callable"):
        px.lower(program)


def crafted(text: str, operators: list[str], path: Path) -> Path:
    """Write a file that ``save`` would refuse to write."""
    nodes = text.partition('graph @""')[2].count(" = ")
    structure = {
        "made with": {"torch": "2"}, "program": text, "operators": operators, "storages": [], "begins": {}, "weights": True,
        "meta": {"keys": [[]], "values": [], "symbols": {}, "graphs": {"": [[[0]], [[0]] * nodes]}},
        "origins": {"origins": [], "steps": []},
    }  # fmt: skip
    raw = torch.frombuffer(bytearray(json.dumps(structure).encode()), dtype=torch.uint8)
    path.write_bytes(
        safetensors.torch.save(
            {container.STRUCTURE: raw}, metadata={"purefx": str(container.VERSION)}
        )
    )
    return path


def test_files_with_bad_intent_name_all_that_is_refused(tmp_path: Path) -> None:
    """Every operator that is refused is in one error, with what to do."""
    marker = tmp_path / "marker"
    path = crafted(
        signed(ways(marker)["getattr"]),
        ["builtins.getattr", "higher_order.wrap", "operator.getitem"],
        tmp_path / "evil.purefx",
    )
    with pytest.raises(px.errors.UnsupportedProgram) as caught:
        px.load(path)
    assert "'builtins.getattr' (is not a function on data alone)" in str(caught.value)
    assert "'higher_order.wrap' (calls its operand, and no exporter writes it)" in str(caught.value)
    assert "allow={'builtins.getattr', 'higher_order.wrap'} if you trust its author" in str(
        caught.value
    )
    assert "getitem" not in str(caught.value)
    with pytest.raises(px.errors.UnsupportedProgram, match=r"'higher_order\.wrap'") as caught:
        px.load(path, allow={"builtins.getattr"})
    assert "'builtins.getattr'" not in str(caught.value)
    for (
        use
    ) in USES.values():  # a file that does not tell what it calls is a program that does not run
        program = px.load(crafted(signed(ways(marker)["getattr"]), [], tmp_path / "silent.purefx"))
        try:
            use(program)
        except px.PurefxError:
            pass
    assert not marker.exists()


def test_what_is_allowed_by_name_runs(tmp_path: Path) -> None:
    """The reader decides; what is in no registry cannot be allowed, only given."""
    text = signed(
        ' s = builtins.getattr(x, "shape")\n n = operator.getitem(s, 0)\n y = aten.mul.Tensor(x, n)'
    )
    assert px.lower(px.parse(text, allow=["builtins.getattr"]))(torch.ones(2)).tolist() == [2, 2]
    program = px.parse(text, allow=["builtins.getattr"])
    assert program.foreign_operators == ("builtins.getattr",)
    assert px.parse(program.text(), allow=["builtins.getattr"]) == program
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"save\(\.\.\., allow={'builtins.getattr'}\) writes their names",
    ):
        px.save(program, tmp_path / "p")
    px.save(program, tmp_path / "p", allow={"builtins.getattr"})
    assert px.load(tmp_path / "p", allow={"builtins.getattr"}) == program
    called = px.parse(signed(' y = os.system("true")'), allow=["os.system"]).main.nodes[0].do
    assert called.target is None  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="allow must be a set of operator names"):
        px.parse(text, allow="builtins.getattr")


def test_programs_of_live_graphs_are_marked_and_saved_on_demand(tmp_path: Path) -> None:
    """A traced module may call anything: the program says what, and no file gets it unasked."""

    class Traced(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.new_ones(x.shape).relu() + x.numpy().sum()

    program = px.import_fx(torch.fx.symbolic_trace(Traced()))
    assert "builtins.getattr" in program.foreign_operators
    assert "method.numpy" in program.foreign_operators
    assert all(
        name in program.foreign_operators or allowed(name) for name in px.stats(program).operators
    )
    with pytest.raises(px.errors.UnsupportedProgram, match=r"may not name: 'builtins.getattr'"):
        px.save(program, tmp_path / "p")
    px.save(program, tmp_path / "p", allow=program.foreign_operators)
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"'method.numpy' \(calls a method of any object by its name\)",
    ):
        px.load(tmp_path / "p", allow={"builtins.getattr"})
    assert px.lower(px.load(tmp_path / "p", allow=program.foreign_operators))(
        torch.ones(2)
    ).tolist() == [3, 3]


class Witness:
    """Whatever is called on it, is written down."""

    def __getattr__(self, name: str) -> Any:
        CALLED.append(name)
        return lambda *_: None


@pytest.mark.parametrize(
    "name", ["tensor.relu", "tensor.to", "tensor.size", "tensor.split", "tensor.type"]
)
def test_methods_of_tensors_are_called_on_tensors_only(name: str) -> None:
    """A text, a list and any object have methods of such names too."""
    method = allowed(name)
    assert method is not None
    for value in ("a,b", [1], {"a": 1}, Witness()):
        with pytest.raises(TypeError, match="which is not a tensor"):
            method(value, ",")
    assert CALLED == []
    assert (
        method(torch.ones(4), *{"tensor.split": (2,), "tensor.to": (torch.float64,)}.get(name, ()))
        is not None
    )


REFUSED = {
    "operator": "attrgetter itemgetter methodcaller call setitem delitem iadd concat contains countOf",
    "math": "factorial comb perm prod sumprod fsum gcd lcm nextafter",
    "torch": "load save compile from_file set_default_device import_ir_module hub.load _print frombuffer",
    "tensor": "numpy tofile __reduce_ex__ __class__ data_ptr share_memory_ apply_ map_ storage backward untyped_storage "
    "register_hook set_ requires_grad __array__ __dlpack__ format join append tolist pickle record_stream data retain_grad "
    "as_subclass module_load",
    "aten": "add add.__class__ add.op __class__.default no_such.default a\0.b",
    "higher_order": "__class__", "__class__": "mro.default", "load_library": "x.y", "os": "system", "purefx": "ir.text.parse",
}  # fmt: skip


def test_no_name_of_python_is_on_the_list() -> None:
    """Every name in ``builtins``, ``operator``, ``math`` and ``torch`` that is not data in, data out, is refused."""
    for name in dir(builtins):
        found = allowed(f"builtins.{name}")
        assert found is None or name in (
            "abs",
            "bool",
            "float",
            "int",
            "max",
            "min",
            "pow",
            "round",
        ), name
    refused = [(space, name) for space, names in REFUSED.items() for name in names.split()]
    refused += [("method", name) for name in (*REFUSED["tensor"].split(), "relu")]
    assert [
        (space, name) for space, name in refused if allowed(f"{space}.{name}") is not None
    ] == []
    for name, function in PLAIN_FUNCTIONS.items():
        assert op_name(function) == name and allowed(name) is function and denied(name) is None
    assert (
        registered("os.system") is registered("torch.load") is registered("builtins.eval") is None
    )


HARMLESS_TEXT = frozenset({
        "mode", "reduce", "padding_mode", "rounding_mode", "approximate", "indexing", "norm", "UPLO", "ord", "p", "side",
        "driver", "equation", "interpolation", "padding", "compute_mode", "pad_mode", "padding_side", "activation", "alg_id",
        "api_name", "assert_msg", "algorithm", "device_type", "dummy", "a", "b", "unary_attr", "binary_attr", "attr",
        "output_dtype", "unary_post_op", "unary_post_op_algorithm", "binary_post_op", "scalars_algorithm", "post_op_name",
        "post_op_algorithm", "left_string", "unary_algorithm", "algo", "unary_op_algo", "reduction", "fused_op",
    }
)  # fmt: skip
"""Names of arguments that are texts and choose among a fixed few."""

REVIEWED = frozenset(
    {
        "aten", "prims", "quantized", "_quantized", "onednn", "mkldnn", "mkldnn_prepacked", "mkl", "sparse", "quantization",
        "rngprims", "_native", "xnnpack", "prepacked", "quantized_decomposed", "ao", "bucketing", "coor", "flex_gemm",
        "flex_lib", "fsdp", "mempool", "metal_prepack", "pippy", "semi_structured", "streams", "torch_attn", "torch_nn",
        "vulkan_prepack",
    }
)  # fmt: skip
"""Namespaces of torch whose operators compute on tensors, or say on which stream or in which pool of a device."""

NEWER = {"aten.shallow_copy_data_", "fsdp.record_grad_output_stream", "higher_order.switch"}
"""Names of the tables that only newer releases of torch have."""


def schemas() -> list[Any]:
    names = [name.partition(".") for name in torch._C._dispatch_get_all_op_names()]
    found = []
    for name, _, overload in names:
        try:
            found.append(torch._C._get_schema(name, overload))
        except RuntimeError:
            continue
    return found


def suspicious(schema: Any) -> str:
    """Say what about an operator has to be looked at by a person."""
    namespace = schema.name.partition("::")[0]
    if namespace not in REVIEWED and namespace in NAMESPACES:
        return "a namespace that nobody has reviewed"
    if namespace not in REVIEWED:
        return ""
    kinds = {argument.name: str(argument.type) for argument in schema.arguments}
    texts = [
        name
        for name, kind in kinds.items()
        if kind in ("str", "Optional[str]", "List[str]") and name not in HARMLESS_TEXT
    ]
    if texts:
        return f"a text {texts}"
    odd = [
        kind
        for kind in kinds.values()
        if kind in ("Any", "Storage", "Stream") or "Future" in kind or "RRef" in kind
    ]
    if odd and "Storage" not in odd:  # no program has a storage
        return f"an argument of type {odd}"
    words = (
        "file",
        "print",
        "unsafe",
        "data_ptr",
        "_backward",
        "gradients",
        "set_data",
        "plan_cache",
        "from_blob",
        "serialized",
    )
    plain = schema.name.partition("::")[2]
    return next(
        (word for word in words if word in plain and (word != "_backward" or plain == word)), ""
    )


KNOWN_GOOD = re.compile(
    r"(aten|prims)::(_?unsafe_(view|index|index_put_?|masked_index|masked_index_put_accumulate|split|split_with_sizes|chunk)|"
    r"_cufft_get_plan_cache_(max_)?size|_test_\w+)$"
)


def test_the_registry_is_audited() -> None:
    """Every operator of this torch that takes a text, an object or a storage, or has a telling name, was decided on."""
    found = schemas()
    assert len(found) > 2000
    undecided = {}
    for schema in found:
        why = suspicious(schema)
        namespace, _, packet = schema.name.partition("::")
        overload = schema.overload_name or "default"
        if (
            why
            and denied(f"{namespace}.{packet}.{overload}") is None
            and not KNOWN_GOOD.match(schema.name)
        ):
            undecided[schema.name] = why
    assert undecided == {}, undecided


def test_what_is_denied_is_there_and_what_is_left_out_is_known() -> None:
    """The tables name what this torch has, with a reason; higher-order operators that nobody decided on are refused."""
    every = {schema.name for schema in schemas()}
    assert {name for name in DENIED if name.replace(".", "::", 1) not in every} <= NEWER
    assert all(DENIED.values())
    assert all(DENIED_NAMESPACES.values())
    register_all()
    unlisted = {*vars(torch._ops)["_higher_order_ops"]} - HIGHER_ORDER
    assert {"wrap", "flat_apply"} <= unlisted
    assert {
        f"higher_order.{name}" for name in HIGHER_ORDER if allowed(f"higher_order.{name}") is None
    } <= NEWER
    for name in unlisted:
        assert allowed(f"higher_order.{name}") is None


def test_functions_among_arguments_are_operators(tmp_path: Path) -> None:
    """An operator may be handed to another by name, from the same list."""
    for name in ("builtins.getattr", "math.factorial", "aten._print.default", "os.system"):
        with pytest.raises(px.errors.ParseError):
            px.parse(signed(f' y = higher_order.out_dtype(op("{name}"), torch.float32, x, x)'))
    for function in (math.factorial, getattr):
        program = flat([px.Node("y", px.Op("toy.take"), (px.Ref("x"), function))], px.Ref("y"), "x")
        assert program.foreign_operators == (op_name(function),)
        with pytest.raises(px.errors.UnsupportedProgram, match="a file may not name"):
            px.save(program, tmp_path / "p")
