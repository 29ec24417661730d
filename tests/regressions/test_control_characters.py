"""Nothing that is printed for people speaks to their terminal: C0 and C1 controls, ANSI sequences and bidirectional marks."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.ir.expression import Sym
from purefx.laws.checking import Report, check_transformation

BAD = "x\x1b[2J\u202e\r\n\x9b\x07\ty"


def hostile() -> px.Program:
    """Return a program, as a library or a file may make it, in which every name and text is hostile."""
    meta = {"stack_trace": f'File "{BAD}", line 3, in {BAD}\n    {BAD}'}
    call = px.Node(f"{BAD}2", px.Call(px.Frame(BAD), BAD), (px.Ref(BAD),))
    op = px.Node(f"{BAD}1", px.Op(f"toy.{BAD}"), (px.Ref(f"no{BAD}"), BAD), ((BAD, 1),), (px.Frame(BAD),), meta)
    main = px.Graph((px.Input(BAD),), (op, call, px.Node("g", px.Get(BAD))))
    return px.Program.of(
        {"": main, BAD: px.Graph((px.Input(BAD),), (), px.Ref(BAD))},
        state=px.State((BAD,), px.pmap({BAD: px.Slot(px.SlotKind.BUFFER, torch.ones(2), 0, 0)})),
        modules=(px.Module("", BAD), px.Module(BAD, BAD)),
        facts=frozenset({BAD}),
        signature=px.Signature((px.UserInput(px.TensorType(torch.float32, (2,)), BAD),), (px.UserOutput(),)),
        constraints=px.Constraints((px.Range(Sym(BAD), 1, 2),)),
    )


P = hostile()
EMPTY = px.Program.of({"": px.Graph((), (), ())})


def refused(function: Callable[[], object]) -> str:
    with pytest.raises(px.PurefxError) as caught:
        function()
    return str(caught.value)


def named(program: px.Program) -> px.Program:
    return program


named.__name__ = BAD

TEXTS: dict[str, Callable[[], str]] = {
    "program": lambda: str(P),
    "graph": lambda: str(P.main),
    "nodes": lambda: "\n".join(map(str, P.main.nodes)),
    "repr": lambda: repr(P),
    "stats": lambda: str(px.stats(P)),
    "diff": lambda: f"{px.diff(EMPTY, P)}\n{px.diff(P, EMPTY)}\n{px.diff(P, P.evolve(facts=frozenset(), modules=()))}",
    "mermaid": lambda: px.mermaid(P),
    "violations": lambda: "\n".join(map(str, px.verify(P))),
    "lower": lambda: refused(lambda: px.lower(P)),
    "transform": lambda: refused(lambda: px.transform(P)),
    "to_ep": lambda: refused(lambda: px.to_ep(P)),
    "parse": lambda: refused(lambda: px.parse(BAD)),
    "apply": lambda: refused(lambda: px.diff(P, EMPTY).apply(EMPTY)),
    "step": lambda: str(px.Step(BAD, ((BAD, BAD),), P)),
    "rewrite": lambda: str(px.Rewrite(1, BAD, BAD, P, P)),
    "report": lambda: str(Report(BAD, 1, drawn=1, changed=1, refused=0)),
    "unasked": lambda: refused(lambda: check_transformation(named, examples=3)),
}


@pytest.mark.parametrize("what", TEXTS)
def test_what_is_printed_is_printable(what: str) -> None:
    text = TEXTS[what]()
    assert text
    assert all(char.isprintable() or char == "\n" for char in text), ascii(text)


def test_a_name_ends_no_line_of_a_table() -> None:
    """A module called after a row of the table would be one."""
    name = "a\nfake 1 2 3"
    program = px.Program.of({"": px.Graph((), (px.Node("y", px.Op(f"toy.{name}")),), ())}, modules=(px.Module("", name),))
    text, plain = str(px.stats(program)), str(px.stats(evolve(program, modules=(px.Module("", "b"),))))
    assert "\nfake" not in text
    assert len(text.splitlines()) == len(plain.splitlines())
