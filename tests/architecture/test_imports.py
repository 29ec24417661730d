"""What ``import purefx`` imports, and what work imports: counted in fresh processes, since times depend on the machine."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from typing import Any

import pytest

import purefx
from purefx._front import DOORS, HOMES
from tests.architecture.sources import LAYERS, ROOT

HEAVY = (
    "sympy",
    "torch._dynamo",
    "torch._inductor",
    "torch.distributed.tensor",
    "torch.fx.experimental.symbolic_shapes",
)
"""What takes from 0.1 to 1 s to import; ``import torch`` imports none of it."""


def fresh(code: str) -> list[Any]:
    """Return what is said by ``said(...)`` in a process of its own, where torch is imported and nothing else."""
    head = "import json, sys, torch\nbefore = set(sys.modules)\nsaid = lambda found: print(json.dumps(found))\n"
    done = subprocess.run(
        [sys.executable, "-c", head + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


FIRST = f"""
import purefx
said(sorted(set(sys.modules) - before))
said(sorted(name for name in vars(purefx) if not name.startswith("_")))
str(purefx.Graph((), ())), purefx.Graph((), ())._repr_html_()
said(sorted(set(sys.modules) - before))
import purefx.stats, purefx.report
said([callable(purefx.stats), callable(purefx.report), purefx.stats is purefx.stats, purefx.stats.__module__])
said([name for name in {HEAVY} if name in sys.modules])
said([name for name in dir(purefx) if not hasattr(purefx, name)])
import pydoc
said(pydoc.render_doc(purefx, renderer=pydoc.plaintext))
"""


def test_the_package_imports_what_is_asked_for() -> None:
    first, names, with_values, hidden, heavy, gone, told = fresh(FIRST)
    assert first == ["purefx", "purefx._front"], "importing the package imports nothing else"
    assert names == []
    assert {name.split(".")[1] for name in with_values if name.startswith("purefx.")} == {
        "_front",
        "ir",
    }, "a value needs no more"
    assert hidden == [True, True, True, "purefx.stats"], (
        "a submodule does not hide the function of its name"
    )
    assert heavy == gone == []
    assert not [name for name in ("import_ep", "fold_constants", "PURE") if name not in told]
    assert told.count("\n") < 80, "help(px) is two screens"


WORK = f"""
import pickle, tempfile, purefx as px
program = px.import_fx(torch.fx.symbolic_trace(lambda x: torch.ops.aten.relu.default(x)))
assert not px.verify(program)
program = px.transform(px.parse(program.text()))
with tempfile.TemporaryDirectory() as folder:
    px.save(program, folder + "/program")
    program = px.load(folder + "/program")
lowered = px.lower(program)
assert lowered(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
pickle.loads(pickle.dumps(lowered))
cleaned = px.eliminate_dead_code(px.eliminate_common_subexpressions(px.inline(program)))
px.diff(program, cleaned), px.digest(cleaned), px.stats(program), program._repr_html_(), px.rule(lambda x: torch.relu(x))
said([name for name in {HEAVY} if name in sys.modules])
"""


def test_work_without_fake_values_imports_neither_sympy_nor_dynamo() -> None:
    assert fresh(WORK) == [[]]


def test_what_type_checkers_read_is_what_is_there() -> None:
    tree = ast.parse((ROOT / "purefx" / "__init__.py").read_text("utf-8"))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [
        (node.module, alias)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    doors = {alias.name for module, alias in imports if module == "purefx"}
    assert {alias.name: module for module, alias in imports if module != "purefx"} == HOMES
    assert doors <= set(DOORS) <= doors | {"laws", "rules"}
    assert all(alias.asname in (None, alias.name) for _, alias in imports)


def test_a_wrong_name_tells_where_near_ones_are() -> None:
    with pytest.raises(AttributeError) as error:
        getattr(purefx, "lowr")  # noqa: B009
    assert (error.value.name, error.value.obj) == ("lowr", purefx), (
        "Python looks for a near name in dir() of it"
    )
    assert "lower" in dir(purefx)


def test_homes_are_files_of_the_library() -> None:
    assert {home.split(".")[1] for home in HOMES.values()} <= {*LAYERS, "_doors", "report", "stats"}
