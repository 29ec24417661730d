"""Programs are values: equality, hashing, immutability, digest."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import torch

import purefx as px
from tests.programs import ADD, MUL, NEG, Shared, Tower, exported, flat


def _sample() -> px.Program:
    return px.transform(px.import_ep(exported(Shared(), torch.ones(3, 4))))


def test_meta_is_not_compared() -> None:
    """Two nodes that differ in meta alone are equal and hash alike."""
    plain, noted = px.Node("y", NEG, (px.Ref("x"),)), px.Node("y", NEG, (px.Ref("x"),), meta={"note": 1})
    assert plain == noted
    assert hash(plain) == hash(noted)


@pytest.mark.parametrize(
    "other",
    [
        px.Node("z", NEG, (px.Ref("x"), 1)), px.Node("y", ADD, (px.Ref("x"), 1)), px.Node("y", NEG, (px.Ref("x"), True)),
        px.Node("y", NEG, (px.Ref("x"), 1), (("k", 1),)), px.Node("y", NEG, (px.Ref("x"), 1), stack=(px.Frame("a"),)),
    ],
)  # fmt: skip
def test_every_field_is_compared(other: px.Node) -> None:
    """A node differs from one with another name, op, argument, keyword or stack."""
    assert px.Node("y", NEG, (px.Ref("x"), 1)) != other


def test_frozen_all_the_way_down() -> None:
    """No public attribute of anything that a program reaches can be set, and no container in it can be changed."""
    program = _sample()
    todo: list[Any] = [program]
    seen: set[int] = set()
    checked = 0
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        assert not isinstance(value, list | dict | set | bytearray), f"{value!r} can be changed"
        if attrs.has(type(value)):
            for field in attrs.fields(type(value)):
                with pytest.raises(attrs.exceptions.FrozenInstanceError):
                    setattr(value, field.name, None)
                if field.name not in ("value", "target", "in_spec", "out_spec", "meta"):
                    todo.append(getattr(value, field.name))
                checked += 1
        elif isinstance(value, tuple | frozenset):
            todo.extend(value)
        elif hasattr(value, "set") and hasattr(value, "discard"):
            todo.extend(value[key] for key in value)
    assert checked > 500


def test_meta_can_not_be_changed() -> None:
    """Meta is a snapshot: neither its holder nor the exporter's graph can change it."""
    ep = exported(Tower(1), torch.ones(2, 4))
    fx_node = next(node for node in ep.graph.nodes if node.op == "call_function")
    fx_node.meta["custom"] = {"tags": ["a"]}
    node = px.import_ep(ep).main.nodes[0]
    fx_node.meta["custom"]["tags"].append("b")
    fx_node.meta["more"] = 1
    assert node.meta["custom"]["tags"] == ("a",)
    assert "more" not in node.meta
    with pytest.raises(TypeError):
        node.meta["custom"] = 1  # type: ignore[index]


def test_digest_ignores_names_and_sees_everything_else() -> None:
    """Renaming keeps the digest; swapping operands, operators, literals, state or outputs changes it."""
    a = flat([px.Node("a", ADD, (px.Ref("x"), px.Ref("y"))), px.Node("b", MUL, (px.Ref("a"), 2))], px.Ref("b"), "x", "y")
    same = flat([px.Node("p", ADD, (px.Ref("u"), px.Ref("v"))), px.Node("q", MUL, (px.Ref("p"), 2))], px.Ref("q"), "u", "v")
    same = same.evolve(signature=a.signature)
    assert px.digest(a) == px.digest(same)
    nodes = a.main.nodes
    others = [
        (px.Node("a", ADD, (px.Ref("y"), px.Ref("x"))), nodes[1]),
        (px.Node("a", MUL, (px.Ref("x"), px.Ref("y"))), nodes[1]),
        (nodes[0], px.Node("b", MUL, (px.Ref("a"), 2.0))),
        (nodes[0], px.Node("b", MUL, (px.Ref("a"), True))),
        (nodes[0], px.Node("b", MUL, (2, px.Ref("a")))),
        (nodes[0], attrs.evolve(nodes[1], stack=(px.Frame("m"),))),
    ]
    digests = {px.digest(a.with_main(attrs.evolve(a.main, nodes=other))) for other in others}
    digests.add(px.digest(a.with_main(attrs.evolve(a.main, output=(px.Ref("a"),)))))
    assert len(digests) == 7
    assert px.digest(a) not in digests
