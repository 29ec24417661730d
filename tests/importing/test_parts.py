"""Parts of lowered trees are programs with paths of their own; what lies outside is refused."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from tests.models import exported, parent

X = torch.randn(3, 4)


class Layer(parent(lin=lambda: nn.Linear(4, 4))):
    """A layer that counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.ones(4))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return self.lin(x.sin()) + self.bias * self.count


class Model(parent(a=Layer, b=Layer, act=lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU()))):
    """Two layers, one of them called twice, and a sequence."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.b(self.a(x)) + self.b(x))


def weight_norm() -> nn.Module:
    """Return a module with children called 0 in a module called 0."""
    return nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU())


MODELS = {"layers": Model, "weight norm": weight_norm}

PROGRAMS = {
    "tree": lambda model: px.transform(px.capture(model, (X,))),
    "tree of a module": lambda model: px.transform(px.import_fx(exported(model, X).module())),
    "split": lambda model: px.split_balanced(px.transform(px.capture(model, (X,))), 2),
    "one body a call": lambda model: px.expand(px.transform(px.capture(model, (X,)))),
    "state as inputs": lambda model: px.outline(px.capture(model, (X,))),
}


def parts(tree: Any) -> dict[str, Any]:
    """Return the graph modules below the root, by path."""
    return {
        path: module
        for path, module in tree.named_modules()
        if path and isinstance(module, torch.fx.GraphModule)
    }


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("made", PROGRAMS)
def test_the_program_of_a_part_has_its_own_paths(made: str, model: str) -> None:
    tree: Any = px.lower(PROGRAMS[made](MODELS[model]()))
    for path, module in parts(tree).items():
        program = px.import_fx(module)
        assert px.verify(program) == (), path
        inside = {name for name, _ in module.named_modules(remove_duplicate=False)}
        assert {entry.path for entry in program.modules} <= inside, path
        assert not any(node.stack for node in program.main.nodes), path
        assert px.verify(px.transform(program)) == (), path
        args = [torch.randn(formal_shape(formal)) for formal in program.main.inputs]
        results = [
            each(*copy.deepcopy(args))
            for each in (copy.deepcopy(module), px.lower(px.transform(program)))
        ]
        torch.testing.assert_close(*results, rtol=0, atol=0)


def formal_shape(formal: px.Input) -> tuple[int, ...]:
    """Return the shape of an input of a part."""
    return tuple(formal.meta["val"].shape) if "val" in formal.meta else (3, 4)


def test_stacks_in_a_part_begin_at_the_part() -> None:
    """Flat calls inside of a part stay calls of its own modules."""
    program = px.capture(nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU())), (X,))
    tree: Any = px.lower(px.outline(px.sink_state(px.transform(program, px.sink_state)), fuel=0))
    assert parts(tree) == {}
    text = """program {
      modules {
        ""
        a
        a.b
      }
      takes {
        user x: f32[2]
      }
      gives {
        user
      }
      graph @""(x) {
        y = call @a(x) as a
        return (y,)
      }
      graph @a(x) {
        y = aten.neg.default(x)  in b
        return y
      }
    }"""
    outer_module: Any = px.lower(px.parse(text))
    part = px.import_fx(outer_module.get_submodule("a"))
    assert [node.stack for node in part.main.nodes] == [(px.Frame("b"),)]
    assert [module.path for module in part.modules] == ["", "b"]


OUTSIDE = {
    "a module": ('y = call @w(x) as "/w"', "uses the module 'w'"),
    "a module beside a module of its name": (
        'u = call @w(x) as w\n y = call @w(u) as "/w"',
        "uses the module 'w'",
    ),
    "state": ('p = get "/p"\n y = aten.add.Tensor(x, p)', "uses the state 'p'"),
    "state beside state of its name": (
        'q = get p\n u = aten.add.Tensor(x, q)\n p = get "/p"\n y = aten.add.Tensor(u, p)',
        "uses the state 'p'",
    ),
}


@pytest.mark.parametrize("case", OUTSIDE)
def test_what_lies_outside_of_a_part_is_refused_by_name(case: str) -> None:
    nodes, message = OUTSIDE[case]
    tree: Any = px.lower(px.parse(outer(nodes), state={"p": torch.ones(2), "a.p": torch.zeros(2)}))
    assert tree(torch.ones(2))[0].shape == (2,)
    with pytest.raises(px.errors.UnsupportedProgram, match=message) as caught:
        px.import_fx(tree.get_submodule("a"))
    assert "outside of the imported module" in str(caught.value)
    assert px.verify(px.import_fx(tree)) == ()


def outer(nodes: str) -> str:
    """Return the text of a program whose module ``a`` has some nodes."""
    return f"""program {{
      modules {{
        ""
        a
        a.w
        w
      }}
      state {{
        buffer p: f32[2]
        buffer a.p: f32[2]
      }}
      takes {{
        user x: f32[2]
      }}
      gives {{
        user
      }}
      graph @""(x) {{
        y = call @a(x) as a
        z = call @w(y) as w@1
        return (z,)
      }}
      graph @a(x) {{
        {nodes}
        return y
      }}
      graph @w(x) {{
        y = aten.neg.default(x)
        return y
      }}
    }}"""


def test_a_part_put_into_another_module_does_not_read_that_module() -> None:
    """A body reaches outer state through the root of its tree, which does not call it here."""
    state = {"p": torch.ones(2), "a.p": torch.zeros(2)}
    tree: Any = px.lower(px.parse(outer(OUTSIDE["state"][0]), state=state))
    graph = torch.fx.Graph()
    graph.output(graph.call_module("a", (graph.placeholder("x"),)))
    root = nn.Module()
    root.register_buffer("p", torch.full((2,), 5.0))
    root.add_module("a", tree.get_submodule("a"))
    with pytest.raises(px.errors.UnsupportedProgram, match="outside of the imported module"):
        px.import_fx(torch.fx.GraphModule(root, graph))


def test_a_part_with_a_preserved_call_signature_is_refused() -> None:
    ep = exported(Model(), X, preserve_module_call_signature=("a",))
    tree: Any = px.lower(px.transform(px.import_ep(ep)))
    for module in (tree, tree.get_submodule("a")):
        with pytest.raises(px.errors.UnsupportedProgram, match="call signature"):
            px.import_fx(module)
    assert px.verify(px.import_fx(tree.get_submodule("a.lin"))) == ()


def test_a_part_goes_back_into_its_tree() -> None:
    model = Model()
    for path in ("a", "b", "act", "act.0", "a.lin"):
        tree: Any = px.lower(px.transform(px.capture(model, (X,))))
        eager = copy.deepcopy(model)
        above, _, name = path.rpartition(".")
        part = px.lower(px.transform(px.import_fx(tree.get_submodule(path))))
        setattr(tree.get_submodule(above), name, part)
        for _ in range(3):
            assert torch.equal(tree(X), eager(X)), path
        assert [*tree.state_dict()] == [*model.state_dict()]


@pytest.mark.parametrize("guards", [False, True], ids=["split", "split but for its guards"])
def test_stacks_name_parts_only_where_the_parts_are_the_whole_program(guards: bool) -> None:
    """The guards of an export are a module of the root, which is in no part."""
    tree = px.transform(px.capture(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), (X,)))
    flat = px.inline(px.split_balanced(tree, 2))
    module = px.to_ep(flat).module(check_guards=guards)
    program = px.transform(px.import_fx(module))
    names = [] if guards else ["stage0", "stage1"]
    assert [part.name for part in px.parts(program)] == names
    assert torch.equal(px.lower(program)(X), module(X))


def lowered(model: nn.Module) -> Any:
    """Return the lowered tree of a model."""
    return px.lower(px.transform(px.capture(model, (X,))))


VERIFIED = {
    "a tree": lambda: lowered(nn.Sequential(nn.Linear(4, 4))),
    "a part without calls": lambda: lowered(nn.Sequential(nn.Linear(4, 4))).get_submodule("0"),
    "a call of a leaf module": lambda: torch.fx.symbolic_trace(nn.Sequential(nn.ReLU())),
}


@pytest.mark.parametrize("case", VERIFIED)
@pytest.mark.usefixtures("unverified")
def test_what_can_use_more_than_it_contains_is_verified_when_it_is_imported(case: str) -> None:
    module = VERIFIED[case]()
    for fx_node in module.graph.nodes:
        fx_node.meta["val"] = {1, 2}
    with pytest.raises(px.errors.InvalidProgram, match=r"meta\['val'\] is the frozenset"):
        px.import_fx(module)


def test_calls_of_one_module_from_several_bodies_have_several_numbers() -> None:
    """The root calls ``c.in`` itself, and ``c`` calls it with another body."""
    text = """program {
      modules {
        ""
        c
        c.in
      }
      takes {
        user x: f32[2]
      }
      gives {
        user
      }
      graph @""(x) {
        y = call @c(x) as c
        z = call @one(y) as c.in@1
        return (z,)
      }
      graph @c(x) {
        y = call @other(x) as in
        return y
      }
      graph @one(x) {
        y = aten.neg.default(x)
        return y
      }
      graph @other(x) {
        y = aten.exp.default(x)
        return y
      }
    }"""
    tree: Any = px.lower(px.parse(text))
    program = px.import_fx(tree)
    assert px.verify(program) == ()
    x = torch.randn(2)
    assert torch.equal(px.lower(px.transform(program))(x)[0], -x.exp())


def test_guards_of_an_export_are_checked_by_its_root() -> None:
    """torch gives the guards the stack of the first operator, so its module had them."""
    ep = exported(
        nn.Sequential(Layer(), nn.ReLU()),
        X,
        dynamic_shapes=({0: torch.export.Dim("n", min=2, max=9)},),
    )
    program = px.import_fx(ep.module())
    guards = [node for node in program.main.nodes if "_guards_fn" in node.name]
    assert len(guards) == 2 and not any(node.stack for node in guards)
    tree: Any = px.lower(px.transform(program))
    for module in parts(tree).values():
        assert px.verify(px.import_fx(module)) == ()
    with pytest.raises(AssertionError, match="Guard failed"):
        tree(torch.randn(11, 4))
