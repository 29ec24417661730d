"""Programs and pages for the tests of ``report``: names that want to be markup, and data read out of a page."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import torch
from attrs import evolve

import purefx as px
from purefx.ir import (
    Module,
    Signature,
    Slot,
    SlotKind,
    State,
    TensorType,
    UserInput,
    UserOutput,
    pmap,
)
from purefx.ir.origins import Imported, made_of

PAYLOADS = (
    "</script><script>window.hacked=1</script>", '"><img src=x onerror="window.hacked=1">', "<!--<script>window.hacked=1",
    "javascript:window.hacked=1//", "\u202egnp.\u2066exe\u2028\u2029", "\x1b[2J\x1b]0;owned\x07\r\n",
    "{{data}}${window.hacked=1}\\u003cb\\u003e&lt;b&gt;", "__proto__", "\ud800",
)  # fmt: skip


def hostile(text: str) -> px.Program:
    """Return a program that has a text at each door: every kind of name, a literal, a line of source, a rule and a step."""
    x, y, z = [f"{text}{number}" for number in range(3)]
    path = text.replace(".", "")  # a module is listed after those that hold it
    meta = {
        "val": torch.ones(2),
        "stack_trace": f'  File "{text}.py", line 3, in {text}\n    return {text}\n',
    }
    imported = {
        **meta,
        "purefx_origin": Imported(text, text, text, (px.Frame(text),), meta["stack_trace"]),
    }
    inner = px.Node(y, px.Op(f"toy.{text}"), (px.Ref(x), text), meta=imported)
    read = px.Node(z, px.Get(path), meta=meta)
    body = px.Graph((px.Input(x, meta),), (inner, read), px.Ref(y))
    call = px.Node(z, px.Call(px.Frame(path), text), (px.Ref(x),), meta=meta)
    main = px.Graph((px.Input(x, meta),), (call,), (px.Ref(z),))
    program = px.Program.of(
        {"": main, text: body},
        modules=(Module("", text), Module(path, text)),
        state=State(
            (f"{path}.{path}",),
            pmap({f"{path}.{path}": Slot(SlotKind.BUFFER, torch.ones(2), 0, 0)}),
        ),
        signature=Signature((UserInput(TensorType(torch.float32, (2,)), text),), (UserOutput(),)),
    )
    made = evolve(body, nodes=(evolve(inner, meta={**meta, **made_of([imported], text)}), read))
    return program.evolve(
        graphs=program.graphs.set(text, made), trail=(px.ir.Step(text, ((text, text),), program),)
    )


def data_of(page: str) -> dict[str, Any]:
    """Return the data of a page, as its script reads them."""
    (found,) = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(found)


def policy_of(page: str) -> str:
    """Return the policy of a page."""
    (found,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    return html.unescape(found)


@px.rule
def soften(x: Any) -> Any:
    """Match a relu."""
    return torch.relu(x)


@soften.becomes
def _(_: Any, x: Any) -> Any:
    return torch.tanh(x) * 2
