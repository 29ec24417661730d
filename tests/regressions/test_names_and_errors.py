"""Names, literals and errors of odd programs that were once printed, parsed or explained wrongly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attrs import evolve
from torch import nn

import purefx as px
from purefx.ir import StateMutation, Sym
from purefx.ir.validation import invalid_names
from purefx.laws.checking import Report, check_transformation
from tests.models import exported, parent

# Nothing that is printed for people speaks to their terminal: C0 and C1 controls, ANSI sequences and bidirectional marks.


BAD = "x\x1b[2J\u202e\r\n\x9b\x07\ty"


def hostile() -> px.Program:
    """Return a program, as a library or a file may make it, in which every name and text is hostile."""
    meta = {"stack_trace": f'File "{BAD}", line 3, in {BAD}\n    {BAD}'}
    call = px.Node(f"{BAD}2", px.Call(px.Frame(BAD), BAD), (px.Ref(BAD),))
    op = px.Node(
        f"{BAD}1",
        px.Op(f"toy.{BAD}"),
        (px.Ref(f"no{BAD}"), BAD),
        ((BAD, 1),),
        (px.Frame(BAD),),
        meta,
    )
    main = px.Graph((px.Input(BAD),), (op, call, px.Node("g", px.Get(BAD))))
    return px.Program.of(
        {"": main, BAD: px.Graph((px.Input(BAD),), (), px.Ref(BAD))},
        state=px.ir.State(
            (BAD,), px.ir.pmap({BAD: px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)})
        ),
        modules=(px.ir.Module("", BAD), px.ir.Module(BAD, BAD)),
        facts=frozenset({BAD}),
        signature=px.ir.Signature(
            (px.ir.UserInput(px.ir.TensorType(torch.float32, (2,)), BAD),), (px.ir.UserOutput(),)
        ),
        constraints=px.ir.Constraints((px.ir.Range(Sym(BAD), 1, 2),)),
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
    "program": lambda: P.text(),
    "graph": lambda: str(P.main),
    "nodes": lambda: "\n".join(map(str, P.main.nodes)),
    "repr": lambda: repr(P),
    "stats": lambda: str(px.stats(P)),
    "diff": lambda: (
        f"{px.diff(EMPTY, P)}\n{px.diff(P, EMPTY)}\n{px.diff(P, P.evolve(facts=frozenset(), modules=()))}"
    ),
    "mermaid": lambda: px.mermaid(P),
    "violations": lambda: "\n".join(map(str, px.verify(P))),
    "lower": lambda: refused(lambda: px.lower(P)),
    "transform": lambda: refused(lambda: px.transform(P)),
    "to_ep": lambda: refused(lambda: px.to_ep(P)),
    "parse": lambda: refused(lambda: px.parse(BAD)),
    "step": lambda: str(px.ir.Step(BAD, ((BAD, BAD),), P)),
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
    program = px.Program.of(
        {"": px.Graph((), (px.Node("y", px.Op(f"toy.{name}")),), ())},
        modules=(px.ir.Module("", name),),
    )
    text, plain = (
        str(px.stats(program)),
        str(px.stats(evolve(program, modules=(px.ir.Module("", "b"),)))),
    )
    assert "\nfake" not in text
    assert len(text.splitlines()) == len(plain.splitlines())


# Children of a Sequential are called 0, 1, ...: values that belong to them have names all the same.


class Pair(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + 1, x * 2


class Adds(nn.Module):
    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return pair[0] - pair[1]


def test_calls_with_several_results_and_boundaries(tmp_path: Path) -> None:
    """The call of ``0`` was a node called ``0``, and its boundaries ``0_takes`` and ``0_gives``: no file took them."""
    model, x = nn.Sequential(Pair(), Adds()), torch.ones(2)
    for preserved in ((), ("0", "1")):
        program = px.transform(
            px.import_ep(exported(model, x, preserve_module_call_signature=preserved))
        )
        assert list(invalid_names(program)) == []
        px.save(program, tmp_path / "model.purefx")
        assert torch.equal(px.lower(px.load(tmp_path / "model.purefx"))(x), model(x))


# Three programs that ended in errors of Python: written state that is no input, half a hint, an operator that raises.


def written_only() -> px.Program:
    """Return a program that gives a buffer new contents, and does not take it."""
    program = px.parse(WRITTEN, state={"count": torch.zeros(2)})
    assert all(type(spec) is not px.ir.StateInput for spec in program.signature.inputs)
    assert any(type(spec) is StateMutation for spec in program.signature.outputs)
    return program


WRITTEN = """program {
modules {
 "": "M"
}
state {
 buffer count: f32[2]
}
takes {
 user x: f32[2]
}
gives {
 state count
 user
}
graph @""(x) {
 y = aten.add.Tensor(x, 1)
 return (y, y)
}
}"""


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
def test_state_that_is_written_and_no_input(to: str) -> None:
    """It is read for the write; it was a ``KeyError`` of ``lower``."""
    module = px.lower(written_only(), to=to)
    for step in (1.0, 2.0):
        (result,) = module(torch.full((2,), step))
        assert result.tolist() == [step + 1, step + 1]
        assert module.count.tolist() == [step + 1, step + 1]


@pytest.mark.parametrize("key", [px.ir.Items([1]), (1, px.ir.Record(())), slice(1)])
def test_a_dict_whose_keys_have_no_hash(key: px.ir.Arg) -> None:
    """It could not be made when the program runs."""
    node = px.Node("y", px.Op("toy.neg"), (px.ir.Record(((key, 2),)),))
    assert [found.rule for found in px.verify(px.Program.of({"": px.Graph((), (node,), ())}))] == [
        "argument-kinds"
    ]
    right = px.Node("y", px.Op("toy.neg"), (px.ir.Record((((1, "a"), 2),)),))
    assert not px.verify(px.Program.of({"": px.Graph((), (right,), ())}))


# A module that holds state and nothing else, in a flat or split program: it was a list of length 0, so it was false.


class Model(
    parent(
        layers=lambda: torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)]),
        head=lambda: torch.nn.Linear(2, 2),
    )
):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers[1](self.layers[0](x)))


def test_only_lists_are_lists() -> None:
    """Every module is as true as the original, and what is counted is still indexed."""
    model = Model()
    program = px.import_ep(torch.export.export(model, (torch.ones(1, 2),)))
    sunk = px.transform(program, *px.DEFAULT[:3])
    split = px.split_by_tags(sunk, ("a", "b"), tag_of={"layers": "a", "head": "b"})
    for made, prefix in ((px.lower(program), ""), (px.lower(sunk), ""), (px.lower(split), "a.")):
        layers = made.get_submodule(f"{prefix}layers")
        assert isinstance(layers, torch.nn.ModuleList) and len(layers) == 2
        for path in ("layers.0", "layers.1", "head"):
            part = "b." if prefix and path == "head" else prefix
            module = made.get_submodule(part + path)
            assert bool(module) and not isinstance(module, torch.nn.ModuleList), path
