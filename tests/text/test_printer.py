"""The text form: what is printed, and what errors of the parser say."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from purefx import ir
from purefx.ir.importing.exported import import_ep
from purefx.ir.text import parse, print_node
from tests.text.test_parser import QUICK

# What programs look like as text: golden text of exported models, and what must never be seen in it.


class Gate(torch.nn.Module):
    """Has a tied weight, a mutated buffer, a dynamic size, a baked argument and a dict as result."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3, 3, bias=False)
        self.down = torch.nn.Linear(3, 3, bias=False)
        self.down.weight = self.up.weight
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, x: torch.Tensor, *, scale: float = 2.0) -> dict[str, torch.Tensor]:
        self.seen.add_(1)
        return {"y": self.down(self.up(x).relu()) * scale}


GOLDEN = """\
program {
  facts (flat, "state as inputs")
  modules {
    "": test_printer.Gate
    up: torch.nn.modules.linear.Linear
    down: torch.nn.modules.linear.Linear
  }
  state {
    parameter up.weight: f32[3, 3]
    parameter down.weight: f32[3, 3] tied up.weight
    buffer seen: i64[]
  }
  takes {
    state up.weight
    state down.weight
    state seen
    user x: f32[s77, 3]
    user scale: literal 2.0
  }
  gives {
    state seen
    user
  }
  names (x, scale)
  in_spec ((*,), {"scale": *})
  out_spec {"y": *}
  ranges {
    s77 from 2 to 64
  }
  graph @""(p_up_weight, p_down_weight, b_seen, x, scale) {
    add = aten.add.Tensor(b_seen, 1)
    linear = aten.linear.default(x, p_down_weight)       in up
    relu = aten.relu.default(linear)
    linear_1 = aten.linear.default(relu, p_down_weight)  in down
    mul_6 = aten.mul.Tensor(linear_1, 2.0)
    return (add, mul_6)
  }
}
"""


def exported() -> ir.Program:
    """Return the gate, imported."""
    sizes = {"x": {0: torch.export.Dim("batch", min=2, max=64)}, "scale": None}
    ep = torch.export.export(Gate(), (torch.ones(4, 3),), {"scale": 2.0}, dynamic_shapes=sizes)
    return import_ep(ep.run_decompositions({}))


@pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning"
)  # torch, when it copies its own specs
def test_an_exported_model_reads_like_this() -> None:
    printed = exported().text().replace(f"{__name__}.Gate", "test_printer.Gate")
    printed = printed.replace(
        "mul_6", "mul"
    )  # torch 2.13 numbers the value inside the region, 2.15 does not
    assert printed == GOLDEN.replace("mul_6", "mul")


def test_calls_reads_stacks_and_bodies() -> None:
    stack = (ir.Frame("encoder", 1), ir.Frame("encoder.layers.0"), ir.Frame("other", 2))
    assert (
        print_node(ir.Node("w", ir.Get("lin.weight"), stack=stack))
        == "w = get lin.weight  in encoder@1 / .layers.0 / other@2"
    )
    call = ir.Node(
        "y", ir.Call(ir.Frame("layers.1", 3), "layers.0"), (ir.Ref("x"),), (("mask", None),)
    )
    assert print_node(call) == "y = call @layers.0(x, mask=None) as layers.1@3"
    cond = ir.Node(
        "z",
        ir.Op("higher_order.cond"),
        (ir.Ref("p"), ir.Body("$then"), ir.Body("a b"), ir.Items([ir.Ref("x")])),
    )
    assert print_node(cond) == 'z = higher_order.cond(p, @$then, @"a b", [x]) ! pure'


def test_effects_are_printed_only_where_registration_does_not_say_the_same() -> None:
    assert print_node(ir.Node("y", ir.Op("aten.relu.default"))) == "y = aten.relu.default()"
    assert (
        print_node(ir.Node("y", ir.Op("aten.relu.default", ir.ANYTHING)))
        == "y = aten.relu.default() ! anything"
    )
    assert print_node(ir.Node("y", ir.Op("toy.neg", ir.ANYTHING))) == "y = toy.neg() ! anything"


def test_literals_are_strict() -> None:
    args = (
        1,
        True,
        1.0,
        -0.0,
        float("nan"),
        -float("inf"),
        complex(0.0, -0.0),
        "x",
        ...,
        slice(None, 2, None),
        (1,),
    )
    text = '1, True, 1.0, -0.0, nan, -inf, complex(0.0, -0.0), "x", ..., slice(None, 2, None), (1,)'
    assert print_node(ir.Node("y", ir.Op("get"), args)) == f'y = "get"({text}) ! pure'
    things = (
        torch.bfloat16,
        torch.strided,
        torch.channels_last,
        torch.device("cuda", 1),
        ir.Record((("k", ir.Items()),)),
    )
    text = 'torch.bfloat16, torch.strided, torch.channels_last, device("cuda:1"), {"k": []}'
    assert print_node(ir.Node("y", ir.Op("f"), things)) == f"y = f({text}) ! pure"


def test_state_that_is_out_of_the_ordinary() -> None:
    base = torch.zeros(6)
    weight = torch.nn.Parameter(torch.zeros(2, 3).t(), requires_grad=False)
    slots = {
        "a": ir.Slot(ir.SlotKind.BUFFER, base, 0, 0, persistent=False),
        "b": ir.Slot(ir.SlotKind.BUFFER, base[2:], 1, 0),
        "c": ir.Slot(ir.SlotKind.BUFFER, base, 0, 0),
        "w": ir.Slot(ir.SlotKind.PARAMETER, weight, 7, 9),
        "k": ir.Slot(ir.SlotKind.CONSTANT, object(), 8, 10, persistent=False),
    }
    state = ir.State(tuple(slots), ir.pmap(slots))
    block = (
        ir.Program.of({"": ir.Graph((), ())}, state=state)
        .text()
        .split("state {\n")[1]
        .split("  }\n")[0]
    )
    assert [line.strip() for line in block.splitlines()] == [
        "buffer a: f32[6] not_persistent",
        "buffer b: f32[4] offset 2 shares a",
        "buffer c: f32[6] tied a",
        "parameter w: f32[3, 2] strides [1, 3] no_grad",
        'constant k: opaque("builtins.object")',
    ]


# Text that is no program: errors of ours that name the place, for damaged, hostile and random text.


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'program', found the end of the text"),
        ("graph", "expected 'program', found 'graph'"),
        ("program {", "line 1, column 10: expected .*found the end of the text"),
        ("program {\n}\nmore", "line 3, column 1: expected the end of the text, found 'more'"),
        ("program {\n state {\n }\n state {\n }\n}", "line 4, column 2: a second section 'state'"),
        (
            'program {\n graph @""(x) {\n  y = f(x\n  return y\n }\n}',
            r"line 4, column 3: expected '\)', found 'return'",
        ),
        (
            'program {\n graph @""() {\n  return 1.2.3\n }\n}',
            "line 3, column 10: expected a value, found '1.2.3'",
        ),
        ('program {\n graph @""() {\n  return (1)\n }\n}', "line 3, column 12: expected ','"),
        (
            'program {\n graph @""() {\n  return "a\\q"\n }\n}',
            "line 3, column 10: a string that is not closed",
        ),
        (
            'program {\n graph @""() {\n  return "\\Uffffffff"\n }\n}',
            "an escape that is not a character",
        ),
        (
            'program {\n graph @""() {\n  return \x1b[31m\n }\n}',
            "column 10: an unexpected character",
        ),
        (
            'program {\n graph @""() {\n  return op("os.system")\n }\n}',
            r"op: 'os.system' \(is not registered here\)",
        ),
        ('program {\n graph @""() {\n  return device("moon")\n }\n}', "column 10: device: "),
        ('program {\n graph @""() {\n  return complex("a", 2)\n }\n}', "column 10: complex: "),
        ('program {\n graph @""() {\n  return opaque("m.T")\n }\n}', "cannot be read from text"),
        (
            'program {\n graph @""() {\n  y = f(a=1, 2)\n return ()\n }\n}',
            "column 14: a positional argument",
        ),
        (
            'program {\n graph @""() {\n  y = f(1=2)\n return ()\n }\n}',
            "column 9: expected the name of an argument",
        ),
        (
            'program {\n graph @""() {\n  y = f() ! pure, random\n return ()\n }\n}',
            "expected the end of the line",
        ),
        ("program {\n state {\n buffer n: f32[2] tied m\n }\n}", "no earlier slot has this name"),
        (
            "program {\n state {\n buffer n: f33[2]\n }\n}",
            "expected a data type such as f32, found 'f33'",
        ),
        (
            "program {\n state {\n buffer n: f32[-2]\n }\n}",
            "line 3, column 2: .*negative|multiplication overflow",
        ),
        ("program {\n state {\n buffer n: i64[2] grad\n }\n}", "only Tensors of floating point"),
        (
            "program {\n state {\n buffer n: f32[2] strides [1, 1]\n }\n}",
            "line 3, column 2: unequal size length",
        ),
        (
            "program {\n state {\n buffer n: f32[2] strides [-1]\n }\n}",
            "line 3, column 2: a tensor has no negative strides",
        ),
        (
            f'program {{\n graph @""() {{\n return {"9" * 5000}\n }}\n}}',
            "an integer with too many digits",
        ),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(ir.ParseError, match=message) as caught:
        parse(text)
    shown = str(caught.value)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.split("\n")[2].endswith("^")


ODD = st.sampled_from(list('program{}graph@"() =,.[]:;\n\\x0-e#%/!\x00\u202e\ud800'))


@QUICK
@given(st.text(ODD, max_size=60))
def test_any_text_is_a_program_or_an_error_of_ours(text: str) -> None:
    for whole in (
        text,
        f'program {{\n graph @""() {{\n return {text}\n }}\n}}',
        f"program {{\n {text}\n}}",
    ):
        with contextlib.suppress(ir.ParseError):
            parse(whole)


GUARDED = GOLDEN.replace("to 64\n  }", "to 64\n  }\n  guards {\n    size(#0, 0) < 9\n  }")
TEXT = GUARDED.replace(
    "aten.relu.default(linear)", 'f(linear, slice(None, 1, None), "a\\n") ! writes(0:a) random'
)


@QUICK
@given(st.data())
def test_damaged_text_is_a_program_or_an_error_of_ours(data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(TEXT)))
    stop = data.draw(st.integers(at, min(len(TEXT), at + 5)))
    with contextlib.suppress(ir.ParseError, ir.UnsupportedProgram):
        parse(TEXT[:at] + data.draw(st.text(ODD, max_size=3)) + TEXT[stop:])
