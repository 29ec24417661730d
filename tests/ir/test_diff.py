"""``diff``: what makes one program another is found and shown, for any two programs, near or far, valid or not."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from attrs import evolve, fields

import purefx as px
from purefx.ir.analysis.diff import hunks
from purefx.laws.asking import is_changed
from purefx.laws.law import Case
from purefx.laws.strategies import Stage
from purefx.laws.tiers import share
from purefx.laws.variants import renamed, reordered
from tests.laws.registry import REGISTRY
from tests.models import NEG, drawn, flat


def told(before: px.Program, after: px.Program) -> px.ir.Diff:
    """Return the diff of two programs, which is empty if they are equal, and holds the nodes of both where they differ."""
    found = px.diff(before, after)
    for edit in found.graphs:
        if edit.before is not None and edit.after is not None:
            assert patched(edit.before.nodes, edit.nodes) == edit.after.nodes
            assert patched(edit.before.inputs, edit.inputs) == edit.after.inputs
    assert bool(found) == (
        before != after
        or before.facts != after.facts
        or before.signature.lifted != after.signature.lifted
    )
    assert str(found).isascii() and str(found) == str(px.diff(before, after))
    return found


def patched(items: Any, changes: Any) -> Any:
    """Return a sequence with hunks applied."""
    made, done = [], 0
    for hunk in changes:
        assert tuple(items[hunk.start : hunk.start + len(hunk.removed)]) == hunk.removed
        made += [*items[done : hunk.start], *hunk.added]
        done = hunk.start + len(hunk.removed)
    return (*made, *items[done:])


STEPS = {entry.transformation: entry.stages[-1] for entry in REGISTRY}


@pytest.mark.parametrize(
    ("step", "stage"), STEPS.items(), ids=lambda value: getattr(value, "name", value)
)
def test_what_a_transformation_did_is_found(step: px.Transformation, stage: Stage) -> None:
    for program, seed in drawn(stage, share(24))[::3]:
        if is_changed(step, Case(program, seed)) is not None:
            told(program, step(program))
            told(step(program), program)


@pytest.mark.parametrize("stage", ["flat", "tree"])
def test_other_names_and_another_order(stage: Stage) -> None:
    for program, seed in drawn(stage, share(24))[::2]:
        told(program, reordered(program, seed=seed))
        told(program, renamed(program, seed=seed))


def test_the_same_and_the_equal() -> None:
    program = px.parse(flat([px.Node("y", NEG, (px.Ref("x"),))], px.Ref("y"), "x").text())
    for other in (
        program,
        px.parse(program.text()),
        program.evolve(trail=(px.ir.Step("idle", (), program),)),
    ):
        found = px.diff(program, other)
        assert not found
        assert found == px.ir.Diff()
        assert str(found) == "nothing differs"


BASE = px.parse(
    """program {
      facts (flat)
      modules {
        "": toy.Root
        a: toy.A
      }
      state {
        buffer a.m: f32[2]
        buffer a.n: f32[2]
      }
      takes {
        user x: f32[s0]
        user y: f32[s0]
      }
      gives {
        user
        state a.m
      }
      names (x, y)
      in_spec ((*, *), {})
      ranges {
        s0 from 2
      }
      signatures {
        a: names (x)
      }
      graph @""(x, y) {
        neg = aten.neg.default(x)
        add = aten.add.Tensor(neg, y)
        return (add, y)
      }
      graph @unused() {
        return ()
      }
    }""",
    state={"a.m": torch.zeros(2), "a.n": torch.zeros(2)},
)


def text_with(old: str, new: str) -> px.Program:
    """Return the program above with another text."""
    assert old in BASE.text()
    return px.parse(BASE.text().replace(old, new), state=BASE.state)


def with_slot(name: str, **changes: Any) -> px.Program:
    """Return the program above with a slot that differs."""
    slots = BASE.state.slots.set(name, evolve(BASE.state[name], **changes))
    return BASE.evolve(state=px.ir.State(BASE.state.order, slots))


CHANGES: dict[str, tuple[px.Program, str]] = {
    "facts": (text_with("facts (flat)", "facts (outlined)"), "- flat\n+ outlined"),
    "module": (text_with("    a: toy.A\n", "    a: toy.B\n    c\n"), "- a: toy.A\n+ a: toy.B\n+ c"),
    "order of state": (
        BASE.evolve(state=px.ir.State(("a.n", "a.m"), BASE.state.slots)),
        "@@ entry 0\n+ buffer a.n: f32[2]\n  buffer a.m: f32[2]\n@@ entry 1\n- buffer a.n: f32[2]",
    ),
    "contents": (
        with_slot("a.n", value=torch.ones(2)),
        "state changed\nstate with other contents\n  a.n",
    ),
    "tie": (
        with_slot("a.n", cell=0, storage=0),
        "- buffer a.n: f32[2]\n+ buffer a.n: f32[2] tied a.m",
    ),
    "a slot less": (
        BASE.evolve(state=px.ir.State(("a.m",), px.ir.pmap({"a.m": BASE.state["a.m"]}))),
        "state\n@@ entry 1\n  buffer a.m: f32[2]\n- buffer a.n: f32[2]",
    ),
    "input": (
        text_with("user y: f32[s0]", "user y: f32[s0, 1]"),
        "- user y: f32[s0]\n+ user y: f32[s0, 1]",
    ),
    "output": (
        text_with("    state a.m\n", "    input 0\n"),
        "gives\n@@ entry 1\n  user\n- state a.m\n+ input 0",
    ),
    "names": (text_with("names (x, y)", "names (x)"), "names\n- (x, y)\n+ (x)"),
    "pytree": (
        text_with("in_spec ((*, *), {})", 'in_spec ((*,), {"k": *})'),
        '- ((*, *), {})\n+ ((*,), {"k": *})',
    ),
    "no pytree": (text_with("  in_spec ((*, *), {})\n", ""), "in_spec\n- ((*, *), {})"),
    "range": (text_with("s0 from 2", "s0 from 3"), "- s0 from 2\n+ s0 from 3"),
    "guard": (
        text_with("s0 from 2\n", "s0 from 2\n }\n guards {\n s0 == 4\n"),
        "guards\n+ s0 == 4",
    ),
    "call signature": (text_with("names (x)\n", "names (z)\n"), "- a: names (x)\n"),
    "another call": (text_with("a: names (x)", "a@1: names (x)"), "+ a@1: names (x)"),
    "root": (text_with("facts (flat)", "root @unused\n facts (flat)"), "root\n+ @unused"),
    "a graph less": (
        text_with("  graph @unused() {\n    return ()\n  }\n", ""),
        "graph @unused removed\n- graph @unused() {",
    ),
    "a graph more": (
        text_with("graph @unused", "graph @b() {\n return ()\n }\n graph @unused"),
        "graph @b added\n+ graph @b() {",
    ),
    "formal": (text_with('graph @""(x, y)', 'graph @""(x)'), "@@ input 1\n  x\n- y"),
    "return": (
        text_with("return (add, y)", "return [add, y]"),
        "- return (add, y)\n+ return [add, y]",
    ),
    "literal": (text_with("return (add, y)", "return (add, 1)"), "+ return (add, 1)"),
    "node": (
        text_with("neg = aten.neg.default(x)", "neg = aten.neg.default(y)"),
        "1 node changed\n",
    ),
    "stack": (
        text_with("aten.add.Tensor(neg, y)", "aten.add.Tensor(neg, y)  in a"),
        "+ add = aten.add.Tensor(neg, y)  in a",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_everything_that_a_program_has_is_told_and_applied(what: str) -> None:
    after, says = CHANGES[what]
    assert says in str(told(BASE, after))
    told(after, BASE)
    assert what == "contents" or str(told(after, BASE)) != str(px.diff(BASE, after))


def test_text() -> None:
    text = flat(
        [px.Node(name, NEG, (px.Ref("x"),)) for name in "abcdefgh"], px.Ref("h"), "x"
    ).text()
    h = "    h = aten.neg.default(x)\n"
    changed = (
        text.replace(h, "")
        .replace("    b = ", f"{h}    b = ")
        .replace("    f = aten.neg.default(x)", "    new = aten.neg.default(e)")
    )
    changed = changed.replace("e = aten.neg.default(x)", "e = aten.add.Tensor(x, 1)").replace(
        "return (h,)", "return (new,)"
    )
    assert str(told(px.parse(text), px.parse(changed))) == SHOWN


SHOWN = """\
1 graph changed; 1 node added; 1 node removed; 1 node changed; 1 node moved
graph @"" changed
@@ node 1
  a = aten.neg.default(x)
+ h = aten.neg.default(x)  ; moved
  b = aten.neg.default(x)
  c = aten.neg.default(x)
@@ node 4
  d = aten.neg.default(x)
- e = aten.neg.default(x)
- f = aten.neg.default(x)
+ e = aten.add.Tensor(x, 1)
+ new = aten.neg.default(e)
  g = aten.neg.default(x)
@@ node 7
- h = aten.neg.default(x)  ; moved
@@ return
- return (h,)
+ return (new,)"""


def test_nothing_in_a_name_reaches_the_terminal() -> None:
    name = "\x1b[2J\u202e\n- "
    after = BASE.evolve(
        root=name,
        facts=frozenset({name}),
        modules=(px.ir.Module(name, name),),
        signature=evolve(BASE.signature, arg_names=(name,)),
        graphs=px.ir.pmap(
            {name: px.Graph((px.Input(name),), (px.Node(name, px.Op(name), (name,)),), name)}
        ),
    )
    assert str(told(BASE, after)).replace("\n", "").isprintable()


def test_every_field_of_a_program_is_looked_at() -> None:
    """A new field must be compared here as well, and added to this list then."""
    known = {
        px.Program: "graphs root state signature modules call_signatures constraints facts trail past checked imported",
        px.ir.Signature: "inputs outputs in_spec out_spec arg_names lifted",
        px.ir.Constraints: "ranges guards",
        px.ir.State: "order slots",
        px.Graph: "inputs nodes output",
    }
    for kind, names in known.items():
        assert [field.name for field in fields(kind)] == names.split()


def test_sequences() -> None:
    draw = random.Random(0)
    for _ in range(1000):
        before, after = ([draw.randrange(6) for _ in range(draw.randrange(9))] for _ in "ab")
        found = hunks(before, after)
        assert patched(before, found) == tuple(after)
        assert (found == ()) == (before == after)
        ends = [hunk.start + len(hunk.removed) + len(hunk.below) for hunk in found]
        assert all(
            end <= hunk.start - len(hunk.above) for end, hunk in zip(ends, found[1:], strict=False)
        ), "they do not overlap"


def test_what_keeps_its_order_stays() -> None:
    before = list(range(200))
    for moved in (
        before[1:] + before[:1],
        before[-1:] + before[:-1],
        [*before[:50], *before[60:], *before[50:60]],
    ):
        found = hunks(before, moved)
        assert len(found) == 2
        assert sum(len(hunk.removed) for hunk in found) <= 10
