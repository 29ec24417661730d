"""Generated code and persistent maps with bad intent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import torch

import purefx as px
from purefx.ir import persistent
from purefx.ir.operators import op_of
from tests.models import ADD, NEG

# Nothing that came from a program is in the code that runs it.


EVIL = "x); exec('raise SystemExit') #"
QUOTES = "a'\"\n\\b"


def hostile() -> px.Program:
    """Return a program that calls everything it can after code."""
    path = EVIL
    nodes = (
        px.Node(EVIL, px.Get(QUOTES)),
        px.Node(QUOTES, ADD, (px.Ref(EVIL), px.Ref("lambda"))),
        px.Node(
            "import",
            op_of(torch.ops.aten.div.Tensor_mode),
            (px.Ref(QUOTES), 2.0),
            (("rounding_mode", "floor"),),
        ),
    )
    body = px.Graph((px.Input("lambda"),), nodes, px.Ref("import"))
    call = px.Node("class", px.Call(px.Frame(path), "def"), (px.Ref(EVIL),))
    main = px.Graph(
        (px.Input(EVIL),), (call, px.Node("return", NEG, (px.Ref("class"),))), (px.Ref("return"),)
    )
    slot = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    name = f"{path}.{QUOTES}"
    return px.Program.of(
        {"": main, "def": body},
        state=px.ir.State((name,), px.ir.pmap({name: slot})),
        signature=px.ir.Signature(
            (px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), EVIL),), (px.ir.UserOutput(),)
        ),
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
    seen = {
        text
        for code in codes
        for text in (code.co_name, *code.co_names, *code.co_varnames, *map(str, code.co_consts))
    }
    schema = {"rounding_mode"}  # the dispatcher's own argument names may stand in the text
    ours = {name for name in seen if name[:1] in "vt" and name[1:].isdigit()} | {
        "self",
        "getattr",
        "slice",
        "None",
        "2.0",
        "r",
    }
    keywords = {str(tuple(schema))}
    parts = {f"{part}_{index}" for part in ("body", "step") for index in range(9)} | set(
        map(str, range(9))
    )
    assert seen <= ours | schema | keywords | parts, seen
    assert len(codes) == 2


# Persistent maps hold live values alive: pyrsistent's C vector does not, so ours must never use it.


LINES = """
import gc
{first}
{ours}
{second}

class Thing:
    def __init__(self): self.field = [1]

def main():
    # Locals: the collector does not see a running frame, so only a right count of references keeps `thing` whole.
    thing = Thing()
    entries = {{index: None for index in range(2000)}}
    entries[0] = thing
    shared = pmap(entries)
    cycle = {{}}
    cycle["self"] = cycle
    cycle["versions"] = [shared.set(50, 1), shared.set(51, 1)]
    alive = shared.set(52, 1)
    del shared, cycle, entries
    gc.collect()
    assert thing.__dict__ == {{"field": [1]}}, thing.__dict__
    assert alive[0] is thing and alive[51] is None and alive[52] == 1 and len(alive) == 2000

main()
print(type(pmap(dict.fromkeys(range(2000))).set(1, 2)._tree._buckets).__name__)
"""


@pytest.mark.parametrize("environment", [{}, {"PYRSISTENT_NO_C_EXTENSION": "1"}])
@pytest.mark.parametrize("first", ["", "import pvectorc", "import pyrsistent"])
def test_live_values_survive_dead_cycles(first: str, environment: dict[str, str]) -> None:
    """Two versions die in a reference cycle; what they shared is alive and must stay whole, whatever was imported before ours."""
    # The packages themselves would start torch.
    ours = "import sys, types\nsys.modules['purefx'], sys.modules['purefx.ir'] = map(types.ModuleType, ('purefx', 'purefx.ir'))\n"
    folder = str(Path(persistent.__file__).parent)
    ours += f"sys.modules['purefx.ir'].__path__ = [{folder!r}]\n"
    ours += "from purefx.ir.persistent import pmap"
    script = LINES.format(first=first, ours=ours, second="import pyrsistent")
    command = [sys.executable, "-c", script]
    result = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert (result.returncode, result.stdout.strip()) == (0, "PythonPVector"), result.stderr


def test_c_vector_still_loses_live_values() -> None:
    """The reason for ir/persistent.py: when this fails, pyrsistent has mended its extension."""
    script = (
        "import gc\nfrom pvectorc import pvector\ndef main():\n"
        " E = [1]; v = pvector([E] + [0] * 100); cycle = {}; cycle['c'] = cycle\n"
        " cycle['v'] = [v.set(50, 1), v.set(51, 1)]\n del v, cycle\n gc.collect()\n print(E)\nmain()"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert result.stdout.strip() == "[]"
