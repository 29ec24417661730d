"""``verify(program, infer=True)``: meta is what the operators give, and asking leaves no trace."""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Iterator
from logging.handlers import BufferingHandler
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from purefx.ir.verify import verify
from tests.models import Counter, exported
from tests.verify.corruptors import with_node
from tests.verify.exported import dynamic

aten = torch.ops.aten

COND, GETITEM = op_of(torch.ops.higher_order.cond), op_of(operator.getitem)


def program_of(*nodes: px.Node) -> px.Program:
    """Return a program of a float input of shape (2, 3)."""
    signature = px.ir.Signature(
        (px.ir.UserInput(px.ir.TensorType(torch.float32, (2, 3)), "x"),), (px.ir.UserOutput(),)
    )
    graph = px.Graph((px.Input("x", {"val": torch.ones(2, 3)}),), nodes, (px.Ref(nodes[-1].name),))
    return px.Program.of({"": graph}, signature=signature)


def node(target: Any, *args: Any, val: Any, name: str = "y") -> px.Node:
    """Return a node whose meta says what its value is."""
    return px.Node(name, op_of(target), args, (), (), {"val": val})


X = px.Ref("x")

WRONG = {
    "shape": node(aten.t.default, X, val=torch.ones(2, 3)),
    "rank": node(aten.sum.default, X, val=torch.ones(1)),
    "dtype": node(aten.gt.Scalar, X, 0, val=torch.ones(2, 3)),
    "device": node(aten.neg.default, X, val=torch.ones(2, 3, device="meta")),
    "count": node(aten.split.Tensor, X, 1, val=(torch.ones(1, 3),)),
    "part": node(aten.split.Tensor, X, 1, val=(torch.ones(1, 3), torch.ones(2, 3))),
    "number": node(aten.sym_size.int, X, 1, val=2),
    "kind": node(aten.sum.default, X, val=6),
    "function": node(operator.add, 2, 3, val=6),
    "in-place": node(aten.add_.Tensor, X, 1, val=torch.ones(3, 2)),
    "random": node(aten.rand.default, px.ir.Items([2]), val=torch.ones(3)),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=list(WRONG))
def test_wrong_meta_is_told(wrong: px.Node) -> None:
    program = program_of(wrong)
    assert verify(program) == ()
    (violation,) = verify(program, infer=True)
    assert (violation.rule, violation.node) == ("inferred-meta", "y")
    assert violation.message.startswith("its meta has ")


REFUSED = {
    "view": (
        node(aten.view.default, X, px.ir.Items([4]), val=torch.ones(4)),
        "shape '[4]' is invalid for input of size 6",
    ),
    "sizes": (
        node(aten.mm.default, X, X, val=torch.ones(2, 3)),
        "a and b must have same reduction dim",
    ),
    "rank": (node(aten.transpose.int, X, 0, 5, val=torch.ones(3, 2)), "Dimension out of range"),
    "without meta": (
        px.Node("y", op_of(aten.mm.default), (X, X)),
        "a and b must have same reduction dim",
    ),
    "item": (
        node(aten.item.default, X, val=7),
        "a Tensor with 6 elements cannot be converted to Scalar",
    ),
    "number": (node(operator.add, 2, "text", val=3), "unsupported operand type"),
}


@pytest.mark.parametrize(("refused", "said"), REFUSED.values(), ids=list(REFUSED))
def test_what_an_operator_refuses_is_told_in_its_words(refused: px.Node, said: str) -> None:
    program = program_of(refused)
    assert verify(program) == ()
    (violation,) = verify(program, infer=True)
    assert (violation.rule, violation.node) == ("inferred-meta", "y")
    assert violation.message.startswith("its operator rejects its arguments: ")
    assert said in violation.message


def chosen(*branches: px.Node, val: Any = None) -> px.Program:
    """Return a program that gives what one of two operators gives."""
    call = px.Node(
        "y",
        COND,
        (px.Ref("p"), px.ir.Body("yes"), px.ir.Body("no"), (X,)),
        (),
        (),
        {"val": val} if val else {},
    )
    program = program_of(
        px.Node("p", op_of(aten.any.default), (X,)), call, px.Node("z", GETITEM, (px.Ref("y"), 0))
    )
    bodies = {
        name: px.Graph(program.main.inputs, (each,), (px.Ref("z"),))
        for name, each in zip(("yes", "no"), branches, strict=True)
    }
    return program.evolve(graphs=program.graphs.update(bodies))


def test_branches_that_disagree_are_told() -> None:
    plain = node(aten.neg.default, X, val=torch.ones(2, 3), name="z")
    double = node(aten.to.dtype, X, torch.float64, val=torch.ones(2, 3).double(), name="z")
    row = node(aten.sum.dim_IntList, X, px.ir.Items([0]), val=torch.ones(3), name="z")
    turned = node(aten.t.default, X, val=torch.ones(3, 2), name="z")
    for other, said in ((double, "torch.float64"), (row, r"shape \(3,\)")):
        (violation,) = verify(chosen(plain, other), infer=True)
        assert (violation.rule, violation.node) == ("inferred-meta", "y")
        assert re.search(
            f"the branch 'yes' returns .*, and the branch 'no' returns .*{said}", violation.message
        )
    (violation,) = verify(chosen(turned, turned, val=(torch.ones(2, 3),)), infer=True)
    assert (
        "returns a torch.float32 of shape (3, 2) on cpu, and its meta has a torch.float32 of shape (2, 3)"
        in violation.message
    )
    assert (
        verify(chosen(plain, turned), infer=True)
        == verify(chosen(plain, plain, val=(torch.ones(2, 3),)), infer=True)
        == ()
    )


SILENT = {
    "data": node(aten.nonzero.default, X, val=torch.ones(7, 2)),
    "contents": node(aten.equal.default, X, X, val=True),
    "unknown": px.Node("y", op_of(aten.neg.default), (X,)),
    "ordered": node(aten._print.default, "never", val=torch.ones(9)),
    "function": node(print, "never", val=torch.ones(9)),
}


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """Return what is logged, by torch too, whose loggers hand nothing on."""
    handler = BufferingHandler(1_000)
    loggers = [logging.getLogger(name) for name in (None, "torch", "torch._subclasses.fake_tensor")]
    for logger in loggers:
        logger.addHandler(handler)
    yield handler.buffer
    for logger in loggers:
        logger.removeHandler(handler)


@pytest.mark.parametrize("silent", SILENT.values(), ids=list(SILENT))
def test_what_can_not_be_inferred_is_passed_over(
    silent: px.Node, capfd: pytest.CaptureFixture[str], logged: list[logging.LogRecord]
) -> None:
    assert verify(program_of(silent), infer=True) == ()
    assert capfd.readouterr() == ("", "")
    assert logged == []


def test_torch_is_as_talkative_afterwards_as_before() -> None:
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before = list(logger.filters)
    verify(program_of(REFUSED["view"][0]), infer=True)
    assert logger.filters == before


def test_a_value_that_gets_another_shape_in_place_is_not_known_afterwards() -> None:
    turned = node(aten.t_.default, X, val=torch.ones(3, 2), name="turned")
    assert (
        verify(program_of(turned, node(aten.neg.default, X, val=torch.ones(3, 2))), infer=True)
        == ()
    )


def test_dynamic_sizes_get_no_guards() -> None:
    program = px.import_ep(dynamic())
    val = program.main.inputs[1].meta["val"]
    env = val.fake_mode.shape_env
    before = (
        len(env.guards),
        dict(env.var_to_range),
        dict(env.replacements),
        torch.get_rng_state().tolist(),
    )
    assert verify(program, infer=True) == ()
    assert (
        len(env.guards),
        dict(env.var_to_range),
        dict(env.replacements),
        torch.get_rng_state().tolist(),
    ) == before
    with val.fake_mode:
        wrong = torch.empty(val.shape[0], 4)  # "cat" has two of them
    found = verify(with_node("cat", meta={"val": wrong})(program), infer=True)
    assert [(violation.rule, violation.node) for violation in found] == [("inferred-meta", "cat")]
    assert len(env.guards) == before[0]


class Counted(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sin() + x.sum()


def test_sizes_that_only_a_run_knows_are_passed_over() -> None:
    program = px.import_ep(torch.export.export(Counted(), (torch.ones(4),)))
    assert verify(program, infer=True) == ()
    total = next(
        node.name
        for node in program.main.nodes
        if str(getattr(node.do, "target", None)) == "aten.sum.default"
    )
    found = verify(with_node(total, meta={"val": torch.ones(4)})(program), infer=True)
    assert [violation.node for violation in found] == [total]


def test_surroundings_play_no_role() -> None:
    program = px.import_ep(exported(Counter(), torch.ones(2, 4)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert verify(program, infer=True) == ()
