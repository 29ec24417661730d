"""Text that is no program: errors of ours that name the place, for damaged, hostile and random text."""

from __future__ import annotations

import contextlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from purefx.ir import (
    Apply,
    ArgAt,
    Constraints,
    Effects,
    Graph,
    Input,
    InputDim,
    Node,
    Op,
    ParseError,
    Program,
    Range,
    Ref,
    Signature,
    Slot,
    SlotKind,
    State,
    Sym,
    TensorType,
    UnsupportedProgram,
    UserInput,
    UserOutput,
    pmap,
)
from purefx.ir.text import parse
from tests.text.test_parser import QUICK


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1: expected 'program', found the end of the text"),
        ("graph", "expected 'program', found 'graph'"),
        ("program {", "line 1, column 10: expected .*found the end of the text"),
        ("program {\n}\nmore", "line 3, column 1: expected the end of the text, found 'more'"),
        ("program {\n state {\n }\n state {\n }\n}", "line 4, column 2: a second section 'state'"),
        ('program {\n graph @""(x) {\n  y = f(x\n  return y\n }\n}', r"line 4, column 3: expected '\)', found 'return'"),
        ('program {\n graph @""() {\n  return 1.2.3\n }\n}', "line 3, column 10: expected a value, found '1.2.3'"),
        ('program {\n graph @""() {\n  return (1)\n }\n}', "line 3, column 12: expected ','"),
        ('program {\n graph @""() {\n  return "a\\q"\n }\n}', "line 3, column 10: a string that is not closed"),
        ('program {\n graph @""() {\n  return "\\Uffffffff"\n }\n}', "an escape that names no character"),
        ('program {\n graph @""() {\n  return \x1b[31m\n }\n}', "column 10: an unexpected character"),
        ('program {\n graph @""() {\n  return op("os.system")\n }\n}', r"op: 'os.system' \(is not registered here\)"),
        ('program {\n graph @""() {\n  return device("moon")\n }\n}', "column 10: device: "),
        ('program {\n graph @""() {\n  return complex(1, 2)\n }\n}', r"expected complex\(float, float\)"),
        ('program {\n graph @""() {\n  return opaque("m.T")\n }\n}', "cannot be read from text"),
        ('program {\n graph @""() {\n  y = f(a=1, 2)\n return ()\n }\n}', "column 8: a positional argument"),
        ('program {\n graph @""() {\n  y = f(1=2)\n return ()\n }\n}', "column 9: expected the name of an argument"),
        ('program {\n graph @""() {\n  y = f() ! pure, random\n return ()\n }\n}', "expected the end of the line"),
        ("program {\n state {\n buffer n: f32[2] tied m\n }\n}", "no slot of this name stands above"),
        ("program {\n state {\n buffer n: f33[2]\n }\n}", "expected a data type such as f32, found 'f33'"),
        ("program {\n state {\n buffer n: f32[-2]\n }\n}", "there is no such tensor"),
        ("program {\n state {\n buffer n: i64[2] grad\n }\n}", "there is no such tensor"),
        ("program {\n state {\n buffer n: f32[2] strides [1, 1]\n }\n}", "as many strides as sizes"),
        (f'program {{\n graph @""() {{\n return {"9" * 5000}\n }}\n}}', "written in hexadecimal"),
    ],
)
def test_errors_name_the_place(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        parse(text)
    shown = str(caught.value)
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.split("\n")[2].endswith("^")


@pytest.mark.parametrize("opening", ["(", "[", "{1: ", "slice(", "({[", "-("])
@pytest.mark.parametrize("before", ['graph @""() {\n return ', "out_spec ", "constraints {\n guard ", "constraints {\n guard f"])
def test_deep_nesting_is_an_error_of_ours(opening: str, before: str) -> None:
    with pytest.raises(ParseError):
        parse(f"program {{\n {before}{opening * 100_000}")


@QUICK
@given(st.text(st.sampled_from(list('program{}graph@"() =,.[]:;\n\\x0-e#%/!')), max_size=60))
def test_any_text_is_a_program_or_an_error_of_ours(text: str) -> None:
    for whole in (text, f'program {{\n graph @""() {{\n return {text}\n }}\n}}', f"program {{\n {text}\n}}"):
        with contextlib.suppress(ParseError):
            parse(whole)


@QUICK
@given(st.data())
def test_damaged_text_is_a_program_or_an_error_of_ours(data: st.DataObject) -> None:
    text = TEXT
    at = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(at, min(len(text), at + 5)))
    with contextlib.suppress(ParseError, UnsupportedProgram):
        parse(text[:at] + data.draw(st.text(max_size=3)) + text[stop:])


TEXT = str(
    Program.of(
        {
            "": Graph(
                (Input("x"),), (Node("y", Op("f", Effects(writes=(ArgAt(0, "a"),))), (Ref("x"), slice(1), "a\n")),), (Ref("y"),)
            )
        },
        state=State(("w", "v"), pmap({name: Slot(SlotKind.PARAMETER, torch.nn.Parameter(torch.ones(2)), 0, 0) for name in "wv"})),
        signature=Signature((UserInput(TensorType(torch.float32, (Apply("+", (Sym("s"), 1)),)), "x"),), (UserOutput(),)),
        constraints=Constraints((Range(Sym("s"), 2, None),), (Apply("<", (InputDim(0, 0), 9)),)),
    )
)
