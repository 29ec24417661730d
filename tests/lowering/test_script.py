"""``to_script``: a text that needs only torch, makes the program again, and finds what a pass gets wrong."""

from __future__ import annotations

import contextlib
import io
import operator
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from torch import nn

import purefx as px
from purefx.ir.arguments import thawed
from purefx.ir.torch_private import pytree
from purefx.laws import example_args, value_differences
from purefx.laws.purity import seeded
from purefx.laws.strategies import Exported, exported_programs
from purefx.laws.toy import TensorMachine, tensor_meaning
from tests.models import Aliased, Block, Counter, Shared, Tower, flat, imported, module_class, node

aten: Any = torch.ops.aten

WRONG = """def a_pass(gm):
    for node in gm.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.tanh.default
    gm.recompile()
    return gm
"""

Branched = module_class(
    "Branched",
    lambda self, x: torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.cos(), (x.exp() - 1,)),
)
Draws = module_class(
    "Draws", lambda self, x: (torch.rand_like(x) * x, nn.functional.dropout(x, 0.5))
)


class Wide(nn.Module):
    """Holds more numbers than are written, in a layout of its own, and small ones of several dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer(
            "small",
            torch.tensor([[1.0, float("inf")], [float("nan"), -0.1]], dtype=torch.bfloat16).t(),
        )
        self.register_buffer("flags", torch.tensor([True, False]), persistent=False)
        self.register_buffer("unit", torch.tensor([1j, 2 - 3j]))
        self.count = torch.tensor(7)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x[:, self.flags].relu() + self.count, self.small * 2, self.unit * self.unit


PROGRAMS = {
    "tower": lambda: imported(Tower(2), torch.randn(2, 4)),
    "tree": lambda: px.transform(imported(Tower(2), torch.randn(2, 4))),
    "parts": lambda: px.split_balanced(px.transform(imported(Tower(3), torch.randn(2, 4))), 2),
    "shared": lambda: px.transform(imported(Shared().eval(), torch.randn(2, 4))),
    "writes": lambda: imported(Counter(), torch.randn(1, 4), decomposed=True),
    "branches": lambda: imported(Branched(), torch.randn(3)),
    "draws": lambda: imported(Draws().train(), torch.randn(5)),
    "sizes": lambda: imported(
        Block(), torch.randn(3, 4), dynamic_shapes=({0: torch.export.Dim("n", max=9)},)
    ),
    "dtypes": lambda: imported(Wide(), torch.randn(1, 2)),
}


def run(script: str) -> tuple[dict[str, Any], int, str]:
    """Return what a script defines, its exit status, and what it prints."""
    told = io.StringIO()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(told), pytest.raises(SystemExit) as ended:
        exec(compile(script, "script", "exec"), namespace)
    return namespace, int(ended.value.code or 0), told.getvalue()


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_the_module_of_a_script_computes_what_the_program_computes(name: str) -> None:
    program = PROGRAMS[name]()
    namespace, status, told = run(px.to_script(program))
    assert (status, told) == (0, "no difference\n")
    ours, theirs = px.lower(program), namespace["program"](namespace["state"]())
    leaves = [spec for spec in program.signature.inputs if isinstance(spec, px.ir.UserInput)]
    for call in range(3):
        args, again = example_args(program, seed=call), namespace["arguments"](call)
        assert value_differences(args, again) == [] and len(args) == len(leaves)
        torch.manual_seed(call)
        mine = pytree.tree_leaves(ours(*args))
        torch.manual_seed(call)
        assert value_differences(list(theirs(*again)), mine) == []
        assert value_differences(again, args) == []
    held = dict(px.lower(program).state_dict(keep_vars=True))
    for path, value in theirs.state_dict(keep_vars=True).items():
        assert type(value) is type(held.get(path, value))


@pytest.mark.parametrize("name", ["tower", "branches", "dtypes"])
def test_a_wrong_pass_is_found(name: str) -> None:
    _, status, told = run(
        px.to_script(
            PROGRAMS[name](), rewrite=WRONG if name != "branches" else WRONG.replace("relu", "exp")
        )
    )
    assert status == 1 and told.startswith("call 0, results: ")


def test_a_program_that_raises_by_itself_says_nothing_of_a_pass() -> None:
    class Asserts(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            torch.ops.aten._assert_async.msg((x > 1000).all(), "too small")
            return x

    program = px.import_ep(torch.export.export(Asserts(), (torch.full((3,), 1001.0),)))
    _, status, told = run(px.to_script(program, rewrite=WRONG))
    assert status == 2 and told.startswith("the program itself raises RuntimeError: too small")


def test_scripts_run_where_purefx_cannot_be_imported(tmp_path: Path) -> None:
    for name in ("tower", "branches", "shared"):
        (tmp_path / f"{name}.py").write_text(
            px.to_script(PROGRAMS[name](), rewrite=WRONG), encoding="utf-8"
        )
        assert "purefx" not in (tmp_path / f"{name}.py").read_text(encoding="utf-8")
    runner = (
        "import pathlib, runpy, sys\n"
        "sys.modules |= dict.fromkeys(('purefx', 'attrs', 'attr', 'pyrsistent', 'hypothesis'))\n"  # not importable
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.py')):\n"
        "    try:\n"
        "        runpy.run_path(str(path), run_name='__main__')\n"
        "    except (SystemExit, Exception) as ended:\n"
        "        print(path.stem, ended)\n"
    )
    found = subprocess.run(
        [sys.executable, "-I", "-c", runner, tmp_path], capture_output=True, text=True, check=False
    )
    lines = found.stdout.splitlines()
    assert "tower True" in lines and any(line.startswith("call 0, results: ") for line in lines)
    assert any(line.startswith("branches ") for line in lines)


def test_names_are_never_code() -> None:
    odd = ['x"]; raise SystemExit(7) #', "graph", "class", "a b", "torch"]
    nodes = [
        node("y\nraise SystemExit(8)", px.op(aten.mul.Tensor), odd[0], odd[1]),
        node("z", px.op(aten.add.Tensor), odd[2], odd[3]),
    ]
    nodes += [
        node("w", px.op(aten.add.Tensor), "z", "y\nraise SystemExit(8)"),
        node("v", px.op(aten.sub.Tensor), "w", odd[4]),
    ]
    program = flat(nodes, (px.Ref("v"),), *odd)
    namespace, status, _ = run(px.to_script(program))
    assert status == 0
    args = example_args(program)
    assert torch.equal(
        namespace["program"]({})(*args)[0], args[2] + args[3] + args[0] * args[1] - args[4]
    )


def test_refusals() -> None:
    tower = PROGRAMS["tower"]()
    held = tower.with_state(add={"held": px.ir.Slot(px.ir.SlotKind.CONSTANT, "text", 0, 0)})
    mine = flat([node("y", px.Op("tests.mine", target=lambda x: x), "x")], (px.Ref("y"),), "x")
    cases: list[tuple[px.Program, str, type[Exception], str]] = [
        (
            tower,
            "def other(gm): return gm",
            px.errors.ArgumentError,
            "must define the function that the script calls",
        ),
        (mine, "", px.errors.UnsupportedProgram, r"tests.mine at node y is not found by name"),
        (
            px.import_fx(torch.fx.symbolic_trace(Tower(1))),
            "",
            px.errors.UnsupportedProgram,
            r"purefx.call_module has no",
        ),
        (
            held,
            "",
            px.errors.UnsupportedProgram,
            "the state 'held' is a str, which a script cannot make",
        ),
        (
            imported(Aliased(), torch.randn(1, 2)),
            "",
            px.errors.UnsupportedProgram,
            "is a view of other state",
        ),
        (
            px.import_fx(torch.fx.symbolic_trace(lambda x: x + 1)),
            "",
            px.errors.UnsupportedProgram,
            "no argument for the input",
        ),
    ]
    for program, rewrite, kind, said in cases:
        with pytest.raises(kind, match=said):
            px.to_script(program, rewrite=rewrite)


def test_operators_of_libraries_are_named() -> None:
    with torch.library._scoped_library("purefx_script", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: 2 * x, "CompositeExplicitAutograd")
        twice = px.op(torch.ops.purefx_script.twice.default)
        script = px.to_script(flat([node("y", twice, "x")], (px.Ref("y"),), "x"), rewrite=WRONG)
        assert "torch.ops.purefx_script.twice.default, (x,)" in script
        assert run(script)[1:] == (0, "no difference\n")


NAN = float("nan")
LEAVES: dict[str, Any] = {
    "quotes": 'it\'s "quoted"',
    "lines": "two\nlines\\ and a tab\t",
    "unicode": "\u2028 {braces} \x00",
    "none": None,
    "flag": True,
    "integer": -(2**70),
    "float": 0.1,
    "nan": NAN,
    "infinity": float("-inf"),
    "negative zero": -0.0,
    "complex": 1 - 2j,
    "complex zero": 0j,
    "dtype": torch.float8_e4m3fn,
    "device": torch.device("cpu"),
    "device with a number": torch.device("meta", 0),
    "layout": torch.sparse_csr,
    "memory format": torch.channels_last,
    "bytes": b"a'\n",
    "range": range(1, 9, 2),
    "ellipsis": ...,
    "list": px.ir.Items([1, ("a", px.ir.Items([None]))]),
    "dict": px.ir.Record((("it's", 1), ("b", (NAN, px.ir.Record(()))))),
    "slice": (slice(None, 2, None),),
    "empty": (),
}
"""A value of each type that can be an argument or a result."""


@pytest.mark.parametrize("name", list(LEAVES))
def test_a_literal_is_a_result_an_argument_and_an_input(name: str) -> None:
    value = LEAVES[name]
    held = flat([], (px.Ref("x"), value, (value, px.Ref("x"))), "x")
    literal = px.ir.UserInput(px.ir.LiteralType(value), "value")
    inputs = (*held.main.inputs, px.Input("value"))
    given = held.with_main(
        px.Graph(inputs, (), held.main.output),
        signature=px.ir.Signature((*held.signature.inputs, literal), held.signature.outputs),
    )
    choice = px.op(operator.getitem)
    chosen = flat([px.Node("y", choice, ((value, px.Ref("x")), 1))], (px.Ref("y"),), "x")
    for program in (held, given, chosen):
        assert run(px.to_script(program))[1:] == (0, "no difference\n")
    written = results_of_graph(held)[1]
    assert repr(written) == repr(thawed(value))


def results_of_graph(program: px.Program) -> Any:
    """Return the results that the script of a program writes into its graph; lists and dicts are torch's immutable ones."""
    namespace, _, _ = run(px.to_script(program))
    results = next(reversed(namespace["program"](namespace["state"]()).graph.nodes)).args[0]
    return pytree.tree_map(lambda leaf: leaf, results)


def test_each_two_literals_differ() -> None:
    results = {name: results_of_graph(flat([], (value,), "x"))[0] for name, value in LEAVES.items()}
    unequal = run(px.to_script(flat([], ("",), "x")))[0]["unequal"]
    for name, value in results.items():
        same = [other for other, result in results.items() if not unequal(result, value)]
        assert same == [name]


DTYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str
)


WITHOUT_NUMBERS = {
    dtype for dtype in DTYPES if re.match(r"torch\.(bits|u?int[1-7]$|float4)", str(dtype))
}
"""Packed dtypes, whose contents torch does not convert to numbers."""


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_state_and_inputs_of_a_dtype(dtype: torch.dtype) -> None:
    if str(dtype).startswith("torch.q"):  # quantized tensors have a test among the kinds of state
        return
    packed = torch.arange(8 * dtype.itemsize, dtype=torch.uint8) % 2
    tensor = packed.view(dtype)
    reads = px.Node("p", px.Get("p"))
    program = flat([reads], (px.Ref("p"), px.Ref("x")), "x").with_state(add={"p": tensor})
    wide = program.with_state(add={"q": packed.repeat(16).view(dtype)})
    for each in (program, wide):
        if dtype in WITHOUT_NUMBERS:
            with pytest.raises(px.errors.UnsupportedProgram, match=f"has dtype {dtype}"):
                px.to_script(each)
        else:
            assert run(px.to_script(each))[1:] == (0, "no difference\n")


@pytest.mark.parametrize("value", [complex(NAN, 1), complex(1, float("inf")), complex(-0.0, 1)])
def test_complex_numbers_that_fx_writes_wrongly(value: complex) -> None:
    with pytest.raises(px.errors.UnsupportedProgram, match=r"torch\.fx does not write the complex"):
        px.to_script(flat([], (value,), "x"))
    held = flat([px.Node("p", px.Get("p"))], (px.Ref("p"),)).with_state(
        add={"p": torch.tensor([value])}
    )
    assert run(px.to_script(held))[1:] == (0, "no difference\n")


class Point(NamedTuple):
    """A result with names."""

    x: torch.Tensor
    name: str


@dataclass
class Named:
    """A registered result."""

    x: torch.Tensor
    mode: str = "it's"


RESULTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "string": lambda x: (x + 1, "mode"),
    "dict": lambda x: {"y": x + 1, "a b": {"name": "s", "none": None}},
    "named tuple": lambda x: Point(x + 1, "p"),
    "numbers": lambda x: [x + 1, 3, 2.5, True, (-0.0, None)],
    "dataclass": lambda x: Named(x + 1),
}


@pytest.mark.parametrize("name", list(RESULTS))
def test_exported_results_with_literals(name: str) -> None:
    if name == "dataclass" and Named not in pytree.SUPPORTED_NODES:
        torch.export.register_dataclass(
            Named, serialized_type_name="tests.lowering.test_script.Named"
        )
    model = module_class("Model", lambda self, x: RESULTS[name](x))()
    program = px.transform(px.capture(model, (torch.ones(2),)))
    assert run(px.to_script(program))[1:] == (0, "no difference\n")
    wrong = px.to_script(program, rewrite=WRONG.replace("relu.default", "add.Tensor"))
    assert run(wrong.replace("aten.tanh.default", "aten.sub.Tensor"))[1] == 1


@settings(
    max_examples=25,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    deadline=None,
)
@given(exported_programs())
def test_drawn_programs(drawn: Exported) -> None:
    program = px.import_ep(drawn.ep)
    namespace: dict[str, Any] = {"__name__": "script"}
    try:
        exec(compile(px.to_script(program), "script", "exec"), namespace)
    except px.errors.UnsupportedProgram:
        assume(False)
    try:
        meaning = tensor_meaning(program, [example_args(program)])
    except RuntimeError:  # an index beyond a size, an assertion about what was drawn
        assume(False)
    machine, module = TensorMachine(), namespace["program"](namespace["state"]())
    with seeded(0), torch.no_grad():
        results = module(*namespace["arguments"](0))
    assert tuple(machine.shown(machine.save(result)) for result in results) == meaning.outputs[0]
