"""Generated code with bad intent."""

from __future__ import annotations

from types import CodeType
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir.operators import op_of
from tests.programs import ADD, NEG

# Nothing that came from a program is in the code that runs it.


EVIL = "x); exec('raise SystemExit') #"
QUOTES = "a'\"\n\\b"


def hostile() -> px.Program:
    """Return a program that calls everything it can after code."""
    path = EVIL
    nodes = (
        px.Node(EVIL, px.Get(QUOTES)),
        px.Node(QUOTES, ADD, (px.Ref(EVIL), px.Ref("lambda"))),
        px.Node("import", op_of(torch.ops.aten.div.Tensor_mode), (px.Ref(QUOTES), 2.0), (("rounding_mode", "floor"),)),
    )
    body = px.Graph((px.Input("lambda"),), nodes, px.Ref("import"))
    call = px.Node("class", px.Call(px.Frame(path), "def"), (px.Ref(EVIL),))
    main = px.Graph((px.Input(EVIL),), (call, px.Node("return", NEG, (px.Ref("class"),))), (px.Ref("return"),))
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    name = f"{path}.{QUOTES}"
    return px.Program.of(
        {"": main, "def": body},
        state=px.ir.State((name,), px.ir.pmap({name: slot})),
        signature=px.ir.Signature((px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), EVIL),), (px.ir.UserOutput(),)),
        modules=(px.ir.Module("", EVIL), px.ir.Module(path, QUOTES)),
    )


def compiled(module: Any) -> list[CodeType]:
    """Return every code object that running the module made, the nested ones too."""
    todo: list[Any] = list(module.purefx_codes)
    found: list[CodeType] = []
    while todo:
        code = todo.pop()
        found.append(code)
        todo.extend(constant for constant in code.co_consts if isinstance(constant, CodeType))
    return found


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_hostile_names_run_and_are_not_compiled(to: Any) -> None:
    """The program runs as it should, and no name, constant or variable of the code is one of its names."""
    program = hostile()
    module = px.lower(program, to=to)
    assert module(torch.ones(2))[0].tolist() == [-1.0, -1.0]
    codes = compiled(module)
    seen = {text for code in codes for text in (code.co_name, *code.co_names, *code.co_varnames, *map(str, code.co_consts))}
    schema = {"rounding_mode"}  # the dispatcher's own argument names may stand in the text
    ours = {name for name in seen if name[:1] in "vt" and name[1:].isdigit()} | {"self", "getattr", "slice", "None", "2.0", "r"}
    keywords = {str(tuple(schema))}
    parts = {f"{part}_{index}" for part in ("body", "step") for index in range(9)} | set(map(str, range(9)))
    assert seen <= ours | schema | keywords | parts, seen
    assert len(codes) == 2
