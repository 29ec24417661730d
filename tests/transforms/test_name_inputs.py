"""What inputs are called: as the exporter calls them, as the caller says, and what is refused.

One idea: nothing is compared but names, and that a lowered module gives the same.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import purefx as px
from tests.programs import ADD, NEG, Aliased, Shared, exported, flat

X = torch.tensor([1.0, 2.0])


class Nested(nn.Module):
    """Takes a dict with odd keys, the rest of the arguments, and keywords."""

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(2, 2)

    def forward(self, batch: dict[str, Any], *more: torch.Tensor, Scale: torch.Tensor, mul: torch.Tensor) -> torch.Tensor:  # noqa: N803
        """Add all up."""
        return self.lin(batch["a-b"]) * Scale + batch["pair"][1] * mul + more[0] + more[1]


def names(program: px.Program) -> list[str]:
    """Return the names of the inputs of the root."""
    return [formal.name for formal in program.main.inputs]


@pytest.mark.parametrize("strict", [False, True])
def test_exported_programs_have_their_names(strict: bool) -> None:
    """The exporter's own names are found again from the signature alone, nested arguments included."""
    nested = ({"a-b": X, "pair": (X, X)}, X, X), {"Scale": X, "mul": X}
    ep = torch.export.export(Nested(), *nested, strict=strict)
    program = px.import_ep(ep)
    assert px.name_inputs(program) is program
    other = program.with_main(renamed(program.main))
    again = px.name_inputs(other)
    assert names(again) == names(program) and names(other)[0] == "arg0_1"
    assert px.alpha_equal(again, program) and px.verify(again) == ()
    for module, args in ((Shared(), torch.ones(3, 4)), (Aliased(), torch.ones(1, 2))):
        program = px.import_ep(exported(module, args, strict=strict))
        assert px.name_inputs(program) is program


def renamed(graph: px.Graph) -> px.Graph:
    """Return a graph whose inputs are called as Dynamo and AOTAutograd call them."""
    new = {formal.name: px.Ref(f"arg{number}_1") for number, formal in enumerate(graph.inputs)}
    inputs = tuple(px.Input(new[formal.name].name, formal.meta) for formal in graph.inputs)
    return px.Graph(inputs, tuple(node.using(new) for node in graph.nodes), graph.output)


def test_nodes_give_way() -> None:
    """The argument ``mul`` gets its name, and the node that has it a number."""
    specs = (px.UserInput(px.ObjectType(), "mul"), px.UserInput(px.ObjectType(), "args[0]"), px.UserInput(px.ObjectType(), "mul"))
    nodes = (px.Node("mul", NEG, (px.Ref("a"),)), px.Node("mul_2", ADD, (px.Ref("mul"), px.Ref("b"))))
    graph = px.Graph(tuple(map(px.Input, "abc")), nodes, (px.Ref("mul_2"), px.Ref("c"), px.Ref("mul")))
    program = px.Program.of({"": graph}, signature=px.Signature(specs, (px.UserOutput(),) * 3))
    result = px.name_inputs(program)
    assert names(result) == ["mul", "args_0", "mul_1"]
    assert [(node.name, node.args) for node in result.main.nodes] == [
        ("mul_3", (px.Ref("mul"),)),
        ("mul_2", (px.Ref("mul_3"), px.Ref("args_0"))),
    ]
    assert result.main.output == (px.Ref("mul_2"), px.Ref("mul_1"), px.Ref("mul_3"))
    assert px.name_inputs(result) is result
    lowered = [px.lower(one)(X, X + 1, X + 2) for one in (program, result)]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*lowered, strict=True))


def test_the_caller_says() -> None:
    """Names of whole arguments are those that the lowered module takes; leaves of a pytree keep their path."""
    traced = px.import_fx(make_fx(lambda x, pair: x * pair[0] + pair[1])(X, (X, X)))
    named = px.name_inputs(traced, ["query", "keys", "values"])
    assert names(named) == ["query", "keys", "values"] and px.verify(named) == ()
    lowered: Any = px.lower(named)
    expected = X * X + X
    assert torch.equal(lowered(X, (X, X)), expected)
    assert named.signature.arg_names[0] == "query"
    plain = px.import_fx(torch.fx.symbolic_trace(lambda x, y: x - y))
    assert torch.equal(px.lower(px.name_inputs(plain, ("left", "right")))(right=X, left=3 * X), 2 * X)
    assert torch.equal(px.lower(px.name_inputs(plain, {"y": "right"}))(right=X, x=3 * X), 2 * X)
    assert px.name_inputs(plain, ("x", "y")) is plain
    assert px.name_inputs(px.name_inputs(plain, ("y", "x")), {"x": "z"}).signature.arg_names == ("y", "z")


def test_names_that_can_not_be_given() -> None:
    program = flat([px.Node("y", ADD, (px.Ref("a"), px.Ref("b")))], px.Ref("y"), "a", "b")
    cases: tuple[tuple[Any, str], ...] = (
        (["x"], "1 names for 2 user inputs: a, b"),
        (["x", "a b"], "not an identifier"),
        (["x", "class"], "keyword"),
        (["x", "x"], "both be called 'x'"),
        ({"aa": "x"}, "no user input 'aa'; did you mean 'a'"),
        ({"a": 3}, "the int 3"),
        ({"a": "b"}, "one name"),
    )
    for given, said in cases:
        with pytest.raises(px.NamingError, match=said):
            px.name_inputs(program.evolve(signature=evolved(program.signature)), given)
    for wrong in ("ab", 3):
        with pytest.raises(TypeError, match="one for each user input"):
            px.name_inputs(program, wrong)


def evolved(signature: px.Signature) -> px.Signature:
    """Return a signature that knows what its arguments are called."""
    return px.Signature(signature.inputs, signature.outputs, arg_names=("a", "b"))


def test_one_at_a_time() -> None:
    program = px.import_ep(exported(Shared(), torch.ones(3, 4)))
    other = program.with_main(renamed(program.main))
    last = px.name_inputs(other, fuel=len(names(other)) - 1)
    changed = [old != new for old, new in zip(names(other), names(last), strict=True)]
    assert sum(changed) == len(changed) - 1 and px.verify(last) == ()
