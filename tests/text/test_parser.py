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
from purefx.ir.errors import InvalidProgram, ParseError
from purefx.ir.expression import OPERATORS
from purefx.ir.text import parse
from purefx.ir.text.arguments import print_arg
from purefx.ir.text.contract import print_expr, read_expr
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
leaves = numbers | constants | st.complex_numbers() | names | names.map(ir.Ref) | names.map(ir.Body)


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
    st.integers()
    | st.booleans()
    | st.floats(allow_nan=False)
    | names.map(ir.Sym)
    | st.builds(ir.InputValue, st.integers(0, 9))
)
exprs: st.SearchStrategy[Any] = st.recursive(
    sizes
    | st.builds(
        ir.InputDim, st.integers(0, 9), st.integers(0, 9), st.sampled_from(["size", "stride"])
    ),
    lambda inner: st.builds(
        ir.Apply, st.sampled_from(sorted(OPERATORS)), st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)
frames = st.builds(
    ir.Frame, names | st.sampled_from(["a", "a.b", "a.b.c", "a.b d"]), st.integers(0, 3)
)
stacks = st.lists(frames, max_size=3).map(tuple)
places = st.builds(ir.ArgAt, st.integers(0, 5), names)
switches = st.builds(
    ir.Unless, places, st.sampled_from([True, False, 0.0, 0.5]), st.sampled_from([None, True, 0.5])
)
effects = st.builds(
    ir.Effects,
    *[st.lists(of, max_size=2).map(tuple) for of in (places, switches, st.none() | places, places)],
    st.booleans(),
    st.lists(switches, max_size=2).map(tuple),
    *[st.booleans()] * 3,
)
ops = st.builds(
    ir.Op,
    st.sampled_from(["aten.add.Tensor", "aten.relu.default", "higher_order.cond", "toy.neg"])
    | names,
    effects,
)
several = (
    st.lists(args, max_size=3).map(tuple),
    st.lists(st.tuples(names, args), max_size=2).map(tuple),
)
nodes = st.builds(ir.Node, names, ops | st.builds(ir.Call, frames, names), *several, stacks)
nodes |= st.builds(ir.Node, names, names.map(ir.Get), stack=stacks)
graphs = st.builds(
    ir.Graph,
    st.lists(names.map(ir.Input), max_size=3).map(tuple),
    st.lists(nodes, max_size=4).map(tuple),
    args,
)
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
call_signatures = st.builds(
    ir.CallSignature,
    *[st.none() | trees] * 2,
    st.lists(names, max_size=2).map(tuple),
    st.booleans(),
)
slots = st.builds(
    lambda kind, cell, persistent: ir.Slot(kind, torch.ones(2), cell, cell % 2, persistent),
    *[st.sampled_from(ir.SlotKind), st.integers(0, 3), st.booleans()],
)
states = st.dictionaries(names, slots, max_size=4).map(lambda of: ir.State(tuple(of), ir.pmap(of)))
programs = st.builds(
    lambda root, graph, others, **fields: ir.Program.of(
        {**others, root: graph}, root=root, **fields
    ),
    names,
    graphs,
    st.dictionaries(names, graphs, max_size=2),
    state=states,
    signature=signatures,
    modules=st.lists(st.builds(ir.Module, names, st.none() | names), max_size=3).map(tuple),
    call_signatures=st.dictionaries(frames, call_signatures, max_size=2).map(ir.pmap),
    constraints=st.builds(
        ir.Constraints,
        st.lists(bounds, max_size=2).map(tuple),
        st.lists(exprs, max_size=2).map(tuple),
    ),
    facts=st.frozensets(names, max_size=2),
)


@QUICK
@given(args, args)
def test_different_arguments_have_different_texts(left: Any, right: Any) -> None:
    assert (print_arg(left) == print_arg(right)) is ir.same_arg(left, right)


@QUICK
@given(exprs)
def test_expressions(expr: Any) -> None:
    cursor = Cursor(print_expr(expr))
    found = read_expr(cursor)
    assert found == expr and cursor.kind == "end"
    assert repr(found) == repr(expr)  # 1, True and 1.0 are equal to Python


@QUICK
@given(programs)
def test_programs(program: ir.Program) -> None:
    text = program.text()
    assert text.isascii() and all(line.isprintable() for line in text.split("\n"))
    found = parse(text, state=program.state)
    assert found == program
    assert found.facts == program.facts
    assert found.text() == text


ROOT = 'graph @""() {\n return ()\n }\n}'


STATE = """program {
  state {
    parameter w: f32[3, 2] strides [1, 3] no_grad
    parameter v: f32[3, 2] strides [1, 3] no_grad tied w
    buffer seen: f32[4] not_persistent
    buffer tail: f32[2] offset 2 shares seen
  }
  """ + ROOT.replace("\n", "\n  ")


def test_stand_ins_are_what_the_text_says() -> None:
    state = parse(STATE).state
    weight, tail = state["w"].value, state["tail"].value
    assert [(slot.cell, slot.storage) for _, slot in state.pairs] == [
        (0, 0),
        (0, 0),
        (1, 1),
        (2, 1),
    ]
    assert state["v"].value is weight and isinstance(weight, torch.nn.Parameter)
    assert (weight.shape, weight.stride(), weight.requires_grad) == ((3, 2), (1, 3), False)
    assert tail.untyped_storage().nbytes() == state["seen"].value.untyped_storage().nbytes() == 16
    assert (tail.storage_offset(), tail.device.type) == (2, "meta")


def test_given_tensors_must_fit() -> None:
    text = "program {\n state {\n buffer n: f32[2]\n }\n" + ROOT
    assert (
        parse(text, state={"n": torch.ones(2), "unused": 1}).state["n"].value.device.type == "cpu"
    )
    with pytest.raises(ir.ParseError, match="line 3, column 2: the tensor passed"):
        parse(text, state={"n": torch.ones(3)})
    with pytest.raises(ir.ParseError, match="pass it in `state`"):
        parse('program {\n state {\n constant k: opaque("m.Script")\n }\n' + ROOT)
    script = object()
    assert (
        parse(
            'program {\n state {\n constant k: opaque("m.Script")\n }\n' + ROOT, state={"k": script}
        )
        .state["k"]
        .value
        is script
    )


def test_an_unknown_operator_is_kept_by_name() -> None:
    program = parse(
        'program {\n graph @""() {\n a = os.system("true")\n b = my.op() ! writes(0:x)\n return ()\n }\n}'
    )
    ops = [node.do for node in program.main.nodes]
    assert ops == [
        ir.Op("os.system", ir.ANYTHING),
        ir.Op("my.op", ir.Effects(writes=(ir.ArgAt(0, "x"),))),
    ]
    assert [op.target for op in ops if isinstance(op, ir.Op)] == [None, None]


def test_comments_blank_lines_and_carriage_returns() -> None:
    text = (
        '; hand-written\n\nprogram {\r\n\n  graph @""(x,\n    y) {  ; two inputs\r\n\n'
        "    return [x,\n      y]\n  }\n\n}\n\n; end"
    )
    assert parse(text).main == ir.Graph(
        (ir.Input("x"), ir.Input("y")), (), ir.Items([ir.Ref("x"), ir.Ref("y")])
    )


def test_a_text_without_its_root_graph_is_refused() -> None:
    """Nothing that looks at a program has to ask whether it has one."""
    body = '{\n  graph @"a"(x) {\n    y = aten.relu.default(x)\n    return (y,)\n  }\n}'
    for text in (
        "program {\n}",
        f"program {body}",
        f"program {body}".replace("{", "{\n  root @b", 1),
    ):
        with pytest.raises(
            ParseError,
            match=r'the text has no root graph @(""|b); add one, or name another: `root @name`',
        ):
            parse(text)
    assert parse(f"program {body}".replace("{", "{\n  root @a", 1)).main.nodes[0].name == "y"
    for text in (body, "{}"):
        made = ir.Program.of(
            {} if text == "{}" else {"a": parse(f"program {body}".replace('"a"', '""')).main}
        )
        for ask in (lambda program: program.main, lambda program: program.inputs):
            with pytest.raises(
                InvalidProgram, match=r"the root is '', which is not in program.graphs"
            ):
                ask(made)


def test_only_text_is_parsed() -> None:
    with pytest.raises(TypeError, match="not a bytes"):
        parse(b"program {}")  # type: ignore[arg-type]
