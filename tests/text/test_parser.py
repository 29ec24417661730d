"""``parse(print(p)) == p``: for generated values of every kind and for exported models."""

from __future__ import annotations

import math
import operator
from collections import OrderedDict
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from purefx import ir
from purefx.ir.allowed import allowed
from purefx.ir.errors import InvalidProgram, ParseError
from purefx.ir.importing.exported import import_ep
from purefx.ir.text import parse
from purefx.ir.text.arguments import print_arg, read_arg
from purefx.ir.text.contract import INFIX, print_expr, read_expr
from purefx.ir.text.lexer import Cursor

QUICK = settings(max_examples=60, deadline=None)

WORDS = ("x", "None", "nan", "inf", "return", "call", "get", "in", "as", "op", "opaque", "slice", "size", "and", "0", "0.5",
         "1e5", "default", "layers.0", "a.b", "$true", "", "@", "b", "True", 'a"b', "a\nb", "\x00", "\u202e", "\ud800", "é",
         "%", "#", ";", "\\", "state")  # fmt: skip

names = st.sampled_from(WORDS) | st.text(st.characters(), max_size=6)
numbers = st.integers() | st.booleans() | st.floats()
constants = st.sampled_from(
    [None, ..., torch.float32, torch.qint8, torch.sparse_coo, torch.channels_last, torch.device("cuda:1"), torch.device("cpu"),
     range(1, 9, 2), torch.ops.aten.add.Tensor, operator.add, math.floor, torch.sym_max, torch.ops.higher_order.cond]
)  # fmt: skip
leaves = numbers | constants | st.complex_numbers() | names | st.binary(max_size=5) | names.map(ir.Ref) | names.map(ir.Body)


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return tuples, lists, records and slices of arguments."""
    several = st.lists(inner, max_size=3)
    pairs = st.lists(st.tuples(inner, inner), max_size=2)
    return (
        several.map(tuple)
        | several.map(ir.Items)
        | pairs.map(lambda of: ir.Record(tuple(of)))
        | st.builds(slice, inner, inner, inner)
    )


args = st.recursive(leaves, containers, max_leaves=6)
sizes = (
    st.integers() | st.booleans() | st.floats(allow_nan=False) | names.map(ir.Sym) | st.builds(ir.InputValue, st.integers(0, 9))
)
exprs: st.SearchStrategy[Any] = st.recursive(
    sizes | st.builds(ir.InputDim, st.integers(0, 9), st.integers(0, 9), st.sampled_from(["size", "stride"])),
    lambda inner: st.builds(ir.Apply, st.sampled_from(INFIX) | names, st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)
frames = st.builds(ir.Frame, names | st.sampled_from(["a", "a.b", "a.b.c", "a.b d"]), st.integers(0, 3))
stacks = st.lists(frames, max_size=3).map(tuple)
places = st.builds(ir.ArgAt, st.integers(0, 5), names)
switches = st.builds(ir.Unless, places, st.sampled_from([True, False, 0.0, 0.5]), st.sampled_from([None, True, 0.5]))
effects = st.builds(
    ir.Effects,
    *[st.lists(of, max_size=2).map(tuple) for of in (places, switches, st.none() | places, places)],
    st.booleans(),
    st.lists(switches, max_size=2).map(tuple),
    *[st.booleans()] * 3,
)
ops = st.builds(ir.Op, st.sampled_from(["aten.add.Tensor", "aten.relu.default", "higher_order.cond", "toy.neg"]) | names, effects)
nodes = st.builds(
    ir.Node,
    names,
    ops | st.builds(ir.Call, frames, names) | names.map(ir.Get),
    st.lists(args, max_size=3).map(tuple),
    st.lists(st.tuples(names, args), max_size=2).map(tuple),
    stacks,
)
graphs = st.builds(ir.Graph, st.lists(names.map(ir.Input), max_size=3).map(tuple), st.lists(nodes, max_size=4).map(tuple), args)
types = (
    st.builds(
        ir.TensorType,
        st.sampled_from([torch.float32, torch.int8, torch.float8_e5m2]),
        st.lists(exprs, max_size=2).map(tuple),
        names,
    )
    | st.builds(ir.NumberType, names, st.none() | exprs)
    | args.map(ir.LiteralType)
    | names.map(ir.ObjectType)
    | st.builds(ir.RestType, st.booleans())
)
trees = st.recursive(
    st.just(pytree.treespec_leaf()),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda of: pytree.TreeSpec(tuple, None, of))
        | st.lists(inner, max_size=3).map(lambda of: pytree.TreeSpec(list, None, of))
        | st.builds(
            lambda kind, of: pytree.TreeSpec(kind, list(of), list(of.values())),
            st.sampled_from([dict, OrderedDict]),
            st.dictionaries(st.integers() | names, inner, max_size=3),
        )
    ),
    max_leaves=6,
)
signatures = st.builds(
    ir.Signature,
    st.lists(
        st.builds(ir.UserInput, types, names, st.none() | args.map(ir.LiteralType))
        | names.map(ir.StateInput)
        | st.just(ir.Token()),
        max_size=3,
    ).map(tuple),
    st.lists(
        st.sampled_from([ir.UserOutput(), ir.Token(), ir.LossOutput()])
        | st.builds(ir.InputMutation, st.integers(0, 5))
        | st.builds(ir.InputGradient, st.integers(0, 5))
        | names.map(ir.StateMutation)
        | names.map(ir.StateGradient),
        max_size=3,
    ).map(tuple),
    st.none() | trees,
    st.none() | trees,
    st.lists(names, max_size=2).map(tuple),
)
bounds = st.builds(ir.Range, exprs, st.none() | st.integers(), st.none() | st.integers())
call_signatures = st.builds(ir.CallSignature, *[st.none() | trees] * 2, st.lists(names, max_size=2).map(tuple), st.booleans())
slots = st.builds(
    lambda kind, cell, persistent: ir.Slot(kind, torch.ones(2), cell, cell % 2, persistent),
    *[st.sampled_from(ir.SlotKind), st.integers(0, 3), st.booleans()],
)
states = st.dictionaries(names, slots, max_size=4).map(lambda of: ir.State(tuple(of), ir.pmap(of)))
programs = st.builds(
    lambda root, graph, others, **fields: ir.Program.of({**others, root: graph}, root=root, **fields),
    names,
    graphs,
    st.dictionaries(names, graphs, max_size=2),
    state=states,
    signature=signatures,
    modules=st.lists(st.builds(ir.Module, names, st.none() | names), max_size=3).map(tuple),
    call_signatures=st.dictionaries(frames, call_signatures, max_size=2).map(ir.pmap),
    constraints=st.builds(ir.Constraints, st.lists(bounds, max_size=2).map(tuple), st.lists(exprs, max_size=2).map(tuple)),
    facts=st.frozensets(names, max_size=2),
)


def given_state(program: ir.Program) -> dict[str, Any]:
    """Return what a program's slots hold."""
    return {name: program.state[name].value for name in program.state}


def at_end(text: str, read: Any) -> Any:
    """Read a text to its end."""
    cursor = Cursor(text)
    found = read(cursor)
    assert cursor.kind == "end"
    return found


@QUICK
@given(args)
def test_arguments(arg: Any) -> None:
    text = print_arg(arg)
    assert text.isascii()
    assert text.isprintable()
    assert ir.same_arg(at_end(text, read_arg), arg)


@QUICK
@given(args, args)
def test_different_arguments_have_different_texts(left: Any, right: Any) -> None:
    assert (print_arg(left) == print_arg(right)) is ir.same_arg(left, right)


@QUICK
@given(exprs)
def test_expressions(expr: Any) -> None:
    found = at_end(print_expr(expr), read_expr)
    assert found == expr
    assert repr(found) == repr(expr)  # 1, True and 1.0 are equal to Python


@QUICK
@given(programs)
def test_programs(program: ir.Program) -> None:
    text = program.text()
    found = parse(text, state=given_state(program))
    assert found == program
    assert found.facts == program.facts
    assert found.text() == text


class Both(torch.nn.Module):
    """Branches, draws, ties and a view."""

    def __init__(self) -> None:
        super().__init__()
        self.up = torch.nn.Linear(3, 3)
        self.down = torch.nn.Linear(3, 3)
        self.down.weight = self.up.weight
        self.register_buffer("seen", torch.zeros(4), persistent=False)
        self.register_buffer("tail", self.seen[2:])

    def forward(self, x: torch.Tensor, extra: dict[str, list[torch.Tensor]], *, flag: bool = True) -> tuple[torch.Tensor, Any]:
        self.seen.add_(1)
        y = torch.nn.functional.dropout(self.down(self.up(x)), 0.5)
        z = torch.cond(y.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (y,))
        return (z * x.shape[0] if flag else z), {"tail": self.tail, "sum": extra["a"][0] + 1}


def exported() -> ir.Program:
    """Return a model with branches, imported."""
    batch = {0: torch.export.Dim("batch", max=8)}
    arguments = (torch.ones(4, 3), {"a": [torch.ones(2)]})
    return import_ep(torch.export.export(Both(), arguments, dynamic_shapes=(batch, {"a": [None]}), strict=False))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch, when it copies its own specs
def test_an_exported_model_and_its_stand_ins() -> None:
    program = exported()
    assert parse(program.text(), state=given_state(program)) == program
    state = parse(program.text()).state
    assert {name: (slot.cell, slot.storage) for name, slot in state.pairs} == {
        name: (slot.cell, slot.storage) for name, slot in program.state.pairs
    }
    assert state["up.weight"].value is state["down.weight"].value
    assert isinstance(state["up.weight"].value, torch.nn.Parameter)
    assert state["tail"].value.untyped_storage().nbytes() == state["seen"].value.untyped_storage().nbytes() == 16
    assert state["tail"].value.storage_offset() == 2
    assert {slot.value.device.type for _, slot in state.pairs} == {"meta"}


ROOT = 'graph @""() {\n return ()\n }\n}'


def test_stand_ins_are_what_the_text_says() -> None:
    text = (
        "program {\n state {\n parameter w: f32[3, 2] strides [1, 3] no_grad\n buffer s: i64[2] layout torch.sparse_coo\n }\n"
        + ROOT
    )
    state = parse(text).state
    weight, sparse = state["w"].value, state["s"].value
    assert (weight.shape, weight.stride(), weight.requires_grad) == ((3, 2), (1, 3), False)
    assert sparse.layout is torch.sparse_coo


def test_given_tensors_must_fit() -> None:
    text = "program {\n state {\n buffer n: f32[2]\n }\n" + ROOT
    assert parse(text, state={"n": torch.ones(2), "unused": 1}).state["n"].value.device.type == "cpu"
    with pytest.raises(ir.ParseError, match="line 3, column 2: the tensor passed"):
        parse(text, state={"n": torch.ones(3)})
    with pytest.raises(ir.ParseError, match="pass it in `state`"):
        parse('program {\n state {\n constant k: opaque("m.Script")\n }\n' + ROOT)
    script = object()
    assert (
        parse('program {\n state {\n constant k: opaque("m.Script")\n }\n' + ROOT, state={"k": script}).state["k"].value is script
    )


def test_operators_are_looked_up_and_never_followed() -> None:
    assert allowed("aten.add.Tensor") is torch.ops.aten.add.Tensor
    assert allowed("higher_order.cond") is torch.ops.higher_order.cond
    assert allowed("math.trunc") is math.trunc
    assert allowed("torch.sym_max") is torch.sym_max
    for name in (
        "os.system", "builtins.eval", "builtins.__import__", "aten.add.__class__", "aten.add.op", "aten.__class__.default",
        "__class__.mro.default", "higher_order.__class__", "operator.attrgetter", "torch.load", "load_library.x.y", "",
        "a\x00.b.c", "aten.add", "aten.no_such.default", "operator.setitem",
    ):  # fmt: skip
        assert allowed(name) is None


def test_an_unknown_operator_is_kept_by_name() -> None:
    program = parse('program {\n graph @""() {\n a = os.system("true")\n b = my.op() ! writes(0:x)\n return ()\n }\n}')
    ops = [node.do for node in program.main.nodes]
    assert ops == [ir.Op("os.system", ir.ANYTHING), ir.Op("my.op", ir.Effects(writes=(ir.ArgAt(0, "x"),)))]
    assert [op.target for op in ops if isinstance(op, ir.Op)] == [None, None]


def test_comments_blank_lines_and_carriage_returns() -> None:
    text = (
        '; hand-written\n\nprogram {\r\n\n  graph @""(x,\n    y) {  ; two inputs\r\n\n    return [x,\n      y]\n  }\n\n}\n\n; end'
    )
    assert parse(text).main == ir.Graph((ir.Input("x"), ir.Input("y")), (), ir.Items([ir.Ref("x"), ir.Ref("y")]))


def test_a_text_without_its_root_graph_is_refused() -> None:
    """Nothing that looks at a program has to ask whether it has one."""
    body = '{\n  graph @"a"(x) {\n    y = aten.relu.default(x)\n    return (y,)\n  }\n}'
    for text in ("program {\n}", f"program {body}", f"program {body}".replace("{", "{\n  root @b", 1)):
        with pytest.raises(ParseError, match=r'the text has no root graph @(""|b); add one, or name another: `root @name`'):
            parse(text)
    assert parse(f"program {body}".replace("{", "{\n  root @a", 1)).main.nodes[0].name == "y"
    for text in (body, "{}"):
        made = ir.Program.of({} if text == "{}" else {"a": parse(f"program {body}".replace('"a"', '""')).main})
        for ask in (hash, lambda program: program.main, lambda program: program.inputs):
            with pytest.raises(InvalidProgram, match=r"the root is '', which is not in program.graphs"):
                ask(made)


def test_only_text_is_parsed() -> None:
    with pytest.raises(TypeError, match="not a bytes"):
        parse(b"program {}")  # type: ignore[arg-type]
