"""``first_difference``: seeded mistakes are named at the node that makes them, and equal programs have none."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from attrs import evolve

import purefx as px
from purefx.laws.tiers import drawn_cases, share
from tests.laws.registry import REGISTRY
from tests.models import parent

aten = torch.ops.aten


class Block(parent(lin=lambda: torch.nn.Linear(3, 3))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x))


class Model(parent(first=Block, second=Block, count=lambda: torch.zeros(()))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.second(self.first(x)) * self.count


X = torch.randn(2, 3, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def program() -> px.Program:
    torch.manual_seed(0)
    return px.import_ep(torch.export.export(Model(), (X,)))


def with_operator(program: px.Program, name: str, operator: object) -> px.Program:
    nodes = tuple(
        [
            evolve(node, do=px.op(operator)) if node.name == name else node
            for node in program.main.nodes
        ]
    )
    return program.with_main(evolve(program.main, nodes=nodes))


def test_a_wrong_node_is_named_with_the_line(program: px.Program) -> None:
    names = [node.name for node in program.main.nodes]
    wrong = with_operator(program, "relu_1", aten.neg.default)
    found = px.first_difference(program, wrong, (X,))
    assert found is not None
    assert (found.name, found.call, found.before) == ("relu_1", 0, names[names.index("relu_1") - 1])
    assert "aten.relu.default" in found.a
    assert "aten.neg.default" in found.b
    assert "torch.relu(self.lin(x))" in found.line
    assert "second / relu_1" in found.where
    assert len(str(found).splitlines()) <= 12


def test_one_instance_of_a_shared_body(program: px.Program) -> None:
    tree = px.transform(program)
    flat = px.inline(px.expand(tree))
    wrong = px.transform(with_operator(flat, "relu", aten.tanh.default))
    found = px.first_difference(tree, wrong, (X,))
    assert found is not None
    assert "first / relu" in found.where


def test_state_that_is_wrong_in_the_second_call(program: px.Program) -> None:
    def twice(node: px.Node) -> px.Node:
        return evolve(node, args=(*node.args[:1], 2)) if node.name == "add_" else node

    wrong = program.with_main(evolve(program.main, nodes=tuple(map(twice, program.main.nodes))))
    found = px.first_difference(program, wrong, (X,), calls=2)
    assert found is not None
    assert (found.name, found.call) == ("add_", 0)
    gone = tuple([node for node in program.main.nodes if node.name != "add_"])
    assert not program.main.users.get("add_", ())
    found = px.first_difference(program, program.with_main(evolve(program.main, nodes=gone)), (X,))
    assert found is not None
    assert found.name == "mul"


def test_values_with_other_names(program: px.Program) -> None:
    wrong = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.neg(x))(program)
    found = px.first_difference(program, wrong, (X,))
    assert found is not None
    assert found.name in ("linear_1", "neg")
    assert "neg" in (*found.new, found.name)


def test_what_raises(program: px.Program) -> None:
    wrong = with_operator(program, "relu_1", aten.linalg_inv.default)
    found = px.first_difference(program, wrong, (X,))
    assert found is not None
    assert "b raises" in found.how


def test_a_tolerance(program: px.Program) -> None:
    close = px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: torch.clamp_min(x, 0) * 1.000001)(
        program
    )
    assert px.first_difference(program, close, (X,)) is not None
    assert px.first_difference(program, close, (X,), rtol=1e-3, atol=1e-3) is None


def test_equal_programs_of_all_kinds_have_none(program: px.Program) -> None:
    ep = torch.export.export(Model(), (X,))
    assert px.first_difference(program, px.transform(program), (X,), calls=3) is None
    assert px.first_difference(ep, px.to_ep(px.import_ep(ep)), (X,)) is None
    assert px.first_difference(program, px.to_fx(px.remove_effect_tokens(program)), (X,)) is None


def test_transformations_leave_no_difference() -> None:
    for case in drawn_cases("aten", "flat", share(9), 2):
        args = _args(case.program, case.calls[0])
        for entry in REGISTRY:
            if "flat" in entry.stages and entry.transformation.name not in ("observe", "to_dtype"):
                result = entry.transformation(case.program)
                leaves = [*case.calls[0]]
                if result is not case.program and len(result.signature.inputs) and args is not None:
                    found = px.first_difference(case.program, result, *args)
                    assert found is None, f"{entry.transformation.name}: {found} {leaves}"


def _args(
    program: px.Program, leaves: object
) -> tuple[tuple[object, ...], dict[str, object]] | None:
    spec = program.signature.in_spec
    if spec is None:
        return None
    args, kwargs = torch.utils._pytree.tree_unflatten(leaves, spec)  # pyright: ignore  # noqa: PGH003
    return args, kwargs


def test_hypothesis_is_not_needed() -> None:
    code = "import sys; sys.modules['hypothesis'] = None\nimport purefx as px\np = px.Program.of({'': px.Graph((), (), ())})\n"
    code += "assert px.first_difference(p, p, ()) is None"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
