"""Every rule can fail: each gets a snippet that breaks it, and one that looks alike and does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.architecture import checkers
from tests.architecture.checkers import CHECKERS
from tests.architecture.privates import torch_privates
from tests.architecture.sources import Source

Checker = Callable[[Source], Iterator[str]]

LEFT = "TO" + "DO"

CASES: list[tuple[Checker, str, str, str]] = [
    (checkers.arrows, "ir/x.py", "from ..transforms.outline import outline", "from ..ir.graph import Graph"),
    (checkers.arrows, "ir/x.py", "from .. import lowering", "from . import graph"),
    (checkers.arrows, "ir/text/x.py", "from ...lowering.lower import lower", "from ..graph import Graph"),
    (checkers.arrows, "transforms/x.py", "from ..lowering import lower", "from ..ir import Graph"),
    (checkers.arrows, "transforms/outline/x.py", "def f():\n    import purefx.lowering", "from ..pipeline import transform"),
    (checkers.arrows, "lowering/x.py", "from ..laws import laws", "from ..transforms import outline"),
    (checkers.arrows, "lowering/__init__.py", "from ..laws import laws", "from .lower import lower"),
    (checkers.arrows, "ir/x.py", "import purefx", "import pure"),
    (checkers.arrows, "purefx/x.py", "from tests.programs import toy", "from purefx.laws import laws"),
    (checkers.pyrsistent_door, "ir/x.py", "from pyrsistent import pmap", "from .persistent import pmap"),
    (checkers.pyrsistent_door, "ir/x.py", "import pyrsistent._pmap as p", "import pyrsistently"),
    (checkers.opening, "ir/x.py", "x = 1", '"""What it is for."""'),
    (checkers.no_print, "ir/x.py", "print(1)", "out.print(1)"),
    (checkers.numbered_marks, "ir/x.py", f"# {LEFT}: later", f"# {LEFT} #12: later"),
    (checkers.devices_of_fakes, "ir/x.py", "value.device", "device_of(value), torch.device('cpu')"),
    (checkers.devices_of_fakes, "ir/state.py", "value.device", "tensor.device"),
    (torch_privates, "ir/x.py", "import torch._ops", "import torch.fx"),
    (torch_privates, "ir/x.py", "from torch._dynamo import reset", "from torch.fx import Graph"),
    (torch_privates, "ir/x.py", "from torch.utils import _pytree", "from ..torch_private import pytree"),
    (torch_privates, "transforms/x.py", "op._schema", "op.schema"),
    (torch_privates, "transforms/x.py", "getattr(ep, '_guards_code', None)", "getattr(ep, 'graph', None)"),
    (torch_privates, "transforms/x.py", "module._modules", "def _own(): ...\nother._own()"),
    (torch_privates, "lowering/x.py", "module._forward_hooks", "module._graph"),
    (torch_privates, "lowering/x.py", "graph._inserted = 1\ngraph._inserted", "self._own = 1\nother._own"),
    (torch_privates, "lowering/x.py", "torch._C._dispatch()", "torch.ops.__name__"),
]


@pytest.mark.parametrize(("checker", "path", "bad", "good"), CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_fails_and_passes(checker: Checker, path: str, bad: str, good: str) -> None:
    assert list(checker(Source(path, bad)))
    assert not list(checker(Source(path, good)))


def test_every_checker_has_a_case() -> None:
    assert {checker for checker, *_ in CASES} == {*CHECKERS, torch_privates}
