"""Wrong calls: the error says who takes what, what it was given, and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import purefx as px
from purefx.errors import (
    ArgumentError,
    FxPassError,
    NamingError,
    ParseError,
    PipelineError,
    RuleError,
)
from purefx.laws.checking import WrongQuestion, check_transformation
from tests.models import exported, parent
from tests.transforms.small import relu, tree
from tests.transforms.test_rules_by_hand import given


class Model(parent(lin=lambda: nn.Linear(2, 2))):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.lin(x))


X = torch.ones(1, 2)
MODEL = Model()
EP = torch.export.export(MODEL, (X,))
GM = torch.fx.symbolic_trace(MODEL)
FLAT = px.import_ep(EP)
TREE = px.transform(FLAT)
P: Any = px
"""The front door, for calls that no type checker lets through."""
NO_LIMIT = "has no option 'limt'; did you mean 'limit'?; it has limit=, parameters=, fuel="
ASKED: Any = check_transformation


def soften(program: px.Program) -> px.Program:
    return program


def forgets(program: px.Program) -> None:
    """Return nothing, as one forgets to return the program."""


def legalize(gm: Any) -> Any:
    return gm.graph.lint()


BOTH = px.rule(lambda x: (torch.sin(x), torch.cos(x)))
DYNAMIC = px.import_ep(
    exported(
        nn.ReLU(), torch.ones(4, 4), dynamic_shapes=({0: torch.export.Dim("d", min=2, max=64)},)
    )
)
UNKNOWN = tree('graph @""(x) {\n  y = aten.relu.default(x)\n  return (y,)\n}')
UNDEFINED = px.Program.of(
    {"": px.Graph((), (px.Node("y", px.Op("toy.neg"), (px.Ref("z"),)),), (px.Ref("y"),))}
)
TWICE = px.Program.of(
    {
        "": px.Graph(
            (), (px.Node("y", px.Op("toy.one")), px.Node("y", px.Op("toy.one"))), (px.Ref("y"),)
        )
    }
)
FORGETFUL = px.transformation()(forgets)  # pyright: ignore[reportArgumentType]

EXPORT = "export it first: px.import_ep(torch.export.export(model, args))"
IMPORTS = "start with px.import_ep(ep)"
LOADS = "px.load(path) reads a program from a file"

INSTEAD: dict[str, tuple[Any, str]] = {
    "an exported program": (EP, "an ExportedProgram; px.import_ep(ep) imports it"),
    "a module": (MODEL, f"a Model; {EXPORT}"),
    "a class": (Model, f"the class Model; {IMPORTS}"),
    "a graph module": (GM, "a GraphModule; px.import_fx(graph_module) imports it"),
    "a graph of fx": (
        GM.graph,
        "a Graph; px.import_fx(torch.fx.GraphModule(root, graph)) imports it",
    ),
    "a graph": (FLAT.main, 'a Graph; px.Program.of({"": graph}) makes a program of it'),
    "text": ("a.purefx", f"a str; {LOADS}, px.parse(text) from text"),
    "a path": (Path("a.purefx"), f"a PosixPath; {LOADS}"),
    "nothing": (None, f"None; {IMPORTS}"),
    "a list": ([FLAT], f"a list; {IMPORTS}"),
    "a transformation": (px.outline, f"a Transformation; {IMPORTS}"),
}

MORE: dict[str, tuple[Any, ...]] = {
    "save": ("none.purefx",), "report": ("none.html",), "history": ("relu",), "became": ("relu",), "name_inputs": (["x"],),
    "split_by_tags": (["a"],), "split_by_module": ({"lin": "a"},), "split_balanced": (2,), "swap_modules": ({},),
    "observe": ("lin",), "minimize": (bool,), "bisect": (px.outline, bool),
}  # fmt: skip
"""Arguments behind the program."""

DOORS: dict[str, Callable[..., object]] = {
    **{name: getattr(px, name) for name in (
        *MORE, "transform", "lower", "verify", "digest", "stats", "to_ep", "to_fx", "to_script", "mermaid", "parts",
        "split_provenance", "outline", "lower_stages",
    )},
    "explain": px.rule(lambda x: torch.relu(x)).becomes(lambda m, x: x).explain,
}  # fmt: skip


@pytest.mark.parametrize("instead", INSTEAD)
def test_something_that_is_no_program(instead: str) -> None:
    """Every door names itself, and says what makes a program of what it was given."""
    given, told = INSTEAD[instead]
    for name, door in DOORS.items():
        with pytest.raises(ArgumentError) as caught:
            door(given, *MORE.get(name, ()))
        assert str(caught.value) == f"{name} takes a purefx Program, not {told}"
    for name, pair in (("diff", px.diff), ("alpha_equal", px.alpha_equal)):
        for sides in ((given, FLAT), (FLAT, given)):
            with pytest.raises(ArgumentError) as caught:
                pair(*sides)
            assert str(caught.value) == f"{name} takes two purefx Programs, not {told}"


EXPORTED = "takes a torch.export.ExportedProgram, not"
GRAPHS = "takes a torch.fx.GraphModule, not"
ADVICE = "return a program, and the same object if there is nothing to do"
A_STEP = "and a step is a function of a program, such as px.outline; pass several as in px.transform(program, *steps)"
WRONG = "a function of a program that returns whether it is wrong, not"
PATTERN = "the pattern of px.rule is a function, as in px.rule(lambda x: torch.relu(x)), not"
CAPTURES = (
    "pass a Program, an ExportedProgram or a GraphModule; px.capture(module, args) imports a module"
)
READS = "pass program.text(), or the text of a file: Path(name).read_text(); px.load reads what px.save wrote"
STAGES = "takes the stages that px.lower_stages makes, not"
TUPLE = "args is the tuple of the positional arguments, not"

CALLS: list[tuple[Callable[[], object], type[Exception], str]] = [
    # the wrong way round
    (lambda: P.save("a.purefx", FLAT), ArgumentError, "save takes the program first, as in save(program, path), not a str"),
    (lambda: P.transform(px.outline, FLAT), ArgumentError,
     "transform takes the program first, as in transform(program, steps), not a Transformation"),
    (lambda: P.history("relu", FLAT), ArgumentError, "history takes the program first, as in history(program, name), not a str"),
    (lambda: P.bisect(px.outline, FLAT, bool), ArgumentError,
     "bisect takes the program first, as in bisect(program, transformation, is_bad), not a Transformation"),
    (lambda: P.swap_modules({"lin": MODEL.lin}, FLAT), ArgumentError,
     "swap_modules takes the program first, as in swap_modules(program, modules), not a dict"),
    (lambda: P.lower(EP), TypeError, "lower takes a purefx Program, not an ExportedProgram; px.import_ep(ep) imports it"),
    # what is imported
    (lambda: P.import_ep(GM), ArgumentError, f"import_ep {EXPORTED} a GraphModule; px.import_fx(graph_module) imports it"),
    (lambda: P.import_ep(MODEL), ArgumentError, f"import_ep {EXPORTED} a Model; {EXPORT}"),
    (lambda: P.import_ep(FLAT), ArgumentError,
     f"import_ep {EXPORTED} a Program; it is imported already: continue with px.transform(program) and px.lower"),
    (lambda: P.import_ep("a.pt2"), ArgumentError, f"import_ep {EXPORTED} a str; torch.export.load(path) reads one from a file"),
    (lambda: P.import_ep(3), ArgumentError, f"import_ep {EXPORTED} an int; torch.export.export(model, args) makes one"),
    (lambda: P.unflatten(GM), ArgumentError, f"unflatten {EXPORTED} a GraphModule; px.import_fx(graph_module) imports it"),
    (lambda: P.import_fx(EP), ArgumentError, f"import_fx {GRAPHS} an ExportedProgram; px.import_ep(ep) imports it"),
    (lambda: P.import_fx(GM.graph), ArgumentError,
     f"import_fx {GRAPHS} a Graph; torch.fx.GraphModule(root, graph) makes one of it"),
    (lambda: P.import_fx(soften), ArgumentError, f"import_fx {GRAPHS} a function; torch.fx.symbolic_trace or make_fx makes one"),
    (lambda: P.import_ep(EP, effects=px.PURE), ArgumentError,
     "effects is a dict, such as {torch.ops.mylib.gelu: px.PURE}, not Effects"),
    (lambda: P.declare(soften, "pure"), ArgumentError,
     "the effects of soften are declared as px.PURE or px.Effects(...), not as 'pure'"),
    (lambda: P.capture(EP, (X,)), ArgumentError,
     "capture takes a torch.nn.Module, not an ExportedProgram; px.import_ep(ep) imports it"),
    (lambda: P.capture(Model, (X,)), ArgumentError,
     "capture takes a torch.nn.Module, not the class Model; pass a module, not its class"),
    (lambda: P.capture(torch.relu, (X,)), ArgumentError,
     "capture takes a torch.nn.Module, not a builtin_function_or_method; write one whose forward computes it"),
    (lambda: P.Program.of(FLAT.main), ArgumentError, 'Program.of takes graphs by id, {"": graph}, not a Graph'),
    # arguments of a call
    (lambda: P.capture(MODEL, X), ArgumentError, f"{TUPLE} a Tensor; for one, write (x,)"),
    (lambda: P.capture(MODEL, [X]), ArgumentError, f"{TUPLE} a list; write tuple(args)"),
    (lambda: P.capture(MODEL, (X,), X), ArgumentError,
     "kwargs maps names to arguments, not a Tensor; options of capture go by name"),
    (lambda: P.first_difference(FLAT, TREE, X), ArgumentError, f"{TUPLE} a Tensor; for one, write (x,)"),
    (lambda: P.first_difference(FLAT, TREE, (X, X)), px.errors.InputError,
     "args do not fit a: takes 1 argument (x), got 2 positional ones"),
    (lambda: P.first_difference(FLAT, TREE, (), {"y": X}), px.errors.InputError,
     "args do not fit a: unexpected argument 'y'; this program takes x"),
    (lambda: P.first_difference(MODEL, TREE, (X,)), ArgumentError, f"a is a Model, not a program: {CAPTURES}"),
    (lambda: P.first_difference(FLAT, MODEL, (X,)), TypeError, f"b is a Model, not a program: {CAPTURES}"),
    # steps
    (lambda: P.transform(FLAT, px.rule), ArgumentError,
     f"{PATTERN} a Program; apply the rule that px.rule returns, not px.rule itself"),
    (lambda: P.transform(FLAT, px.transformation), ArgumentError,
     "transformation makes a decorator, so call it: @transformation(); it was passed a Program"),
    (lambda: P.transform(FLAT, [px.outline]), PipelineError, f"step 1 is a list, {A_STEP}"),
    (lambda: P.transform(FLAT, None), PipelineError, f"step 1 is None, {A_STEP}"),
    (lambda: P.transform(FLAT, px.outline, "inline"), PipelineError, f"step 2 is a str, {A_STEP}"),
    (lambda: P.transform(FLAT, MODEL), PipelineError, f"step 1 is a Model, {A_STEP}"),
    (lambda: P.transform(FLAT, soften, forgets), ArgumentError, f"forgets returned None; {ADVICE}"),
    (lambda: P.transform(FLAT, FORGETFUL), ArgumentError, f"forgets returned None; {ADVICE}"),
    (lambda: P.transform(FLAT, px.outline, P.inline()), ArgumentError,
     "inline takes a purefx Program, but was passed none; as a step of px.transform write inline, not called"),
    (lambda: P.transform(FLAT, P.to_dtype(dtype=torch.bfloat16)), ArgumentError,
     "to_dtype takes a purefx Program, but was passed none; as a step of px.transform write to_dtype.bind(dtype=...)"),
    (lambda: P.outline(FLAT, "lin"), ArgumentError, "outline takes a program by position, and other options by keyword"),
    (lambda: P.fold_constants(FLAT, limt=1), ArgumentError, f"fold_constants {NO_LIMIT}"),
    (lambda: P.dispatch(FLAT, modules=["a"]), ArgumentError, "dispatch has no option 'modules'; it has fuel="),
    (lambda: P.rule(lambda x: torch.relu(x), lambda m, x: torch.tanh(x)), ArgumentError,
     "px.rule takes a pattern alone; pass the replacement to becomes: px.rule(pattern).becomes(replacement)"),
    (lambda: P.transformation(soften), ArgumentError,
     "transformation makes a decorator, so call it: @transformation(); it was passed a function"),
    (lambda: P.bisect(FLAT, [px.outline], True), ArgumentError, f"is_bad of bisect is {WRONG} a bool"),
    (lambda: P.bisect(FLAT, [soften, forgets], lambda program: program is not FLAT), ArgumentError,
     f"forgets returned None; {ADVICE}"),
    (lambda: P.minimize(FLAT, True), ArgumentError, f"is_wrong of minimize is {WRONG} a bool"),
    (lambda: P.as_fx_pass(forgets)(GM), ArgumentError, f"forgets returned None; {ADVICE}"),
    (lambda: P.from_fx_pass(px.outline), FxPassError, "outline takes programs, not fx graphs: pass outline itself to transform"),
    (lambda: ASKED(EP), WrongQuestion, "check_transformation takes a function from programs to programs, not an ExportedProgram"),
    # rules
    (lambda: P.rule(MODEL), ArgumentError, f"{PATTERN} a Model"),
    (lambda: P.rule("relu"), ArgumentError, f"{PATTERN} a str"),
    (lambda: P.rule(torch.relu), RuleError,
     "relu has no signature that Python can read; call it in a function: lambda x: relu(x)"),
    (lambda: P.rule(lambda x: torch.relu(x)).becomes("tanh"), ArgumentError,
     "the replacement of <lambda> is a function of (m, x), in plain torch code, not a str"),
    (lambda: P.rule(at=nn.ReLU)(soften), RuleError,
     "'ReLU' is not an operator of aten; write torch.ops.<library>.<operator>, or px.module(path or class)"),
    (lambda: P.rule(at="aten.relu.default")(soften), RuleError,
     "'aten.relu.default' is not an operator of aten; write torch.ops.<library>.<operator>, or px.module(path or class)"),
    (lambda: P.RuleSet([px.rule]), ArgumentError, "RuleSet takes a tuple of rules, made by px.rule; a + b is a set of two"),
    # patterns
    (lambda: px.rule(lambda x: x.shape), RuleError, "…must be an operator…"),
    (lambda: px.rule(lambda x: (x, x.sin())), RuleError, "…must be an operator…"),
    (lambda: px.rule(lambda x: px.through(x.exp())), RuleError, "…would match everywhere…"),
    (lambda: px.rule(lambda x, y, z: torch.relu(y)), RuleError, "…does not use x, z…"),
    (lambda: px.rule(lambda x: -x if x else x), RuleError, "…cannot branch…"),
    (lambda: px.rule(lambda x: x.relu() if x.shape[0] > 1 else x), RuleError, "…cannot branch…"),
    (lambda: px.rule(lambda *x: torch.relu(x[0])), RuleError, "…each parameter of a rule is a variable…"),
    (lambda: px.rule(lambda x: list(x.chunk(2))), RuleError, "…write parts[0]…"),
    (lambda: px.rule(lambda x, y: (x.sin(), y.sin())), RuleError, "…shares no value with the other results: write two rules…"),
    (lambda: px.rule(lambda x: (y := x.sin(), y)), RuleError, "…returns one value twice…"),
    (lambda: px.rule(lambda x: x.relu_()), RuleError, "…relu_ writes into its arguments…"),
    (lambda: px.rule(lambda x: torch.ops.aten.relu.default(x, 3)), RuleError, "…no overload of relu takes…"),
    (lambda: px.rule(lambda x: functional.interpolate(x, scale_factor=2.0)), RuleError, "…interpolate depends on facts…"),
    (lambda: px.rule(lambda x: torch.norm(x)), RuleError, "…norm depends on facts…"),
    (lambda: px.rule(lambda x: x.stride(0)), RuleError, "…'stride' is not an operator…"),
    (lambda: px.rule(lambda x: x.norm()), AttributeError, "…no 'norm'…"),
    (lambda: px.rule(lambda x: px.any_of(torch.relu(x), len)), RuleError, "…any_of takes values…"),
    (lambda: px.rule(lambda x, y: torch.relu(px.through(x, y.exp()))), RuleError, "…must be a variable of the pattern…"),
    # replacements
    (lambda: px.rule(lambda x: torch.relu(x))(FLAT), RuleError, "…has no replacement: write one as…"),
    (lambda: px.rule(lambda x: torch.relu(x)).becomes(lambda x: x), RuleError, "…takes (m, x), not (x)…"),
    (lambda: relu(lambda m, x: x).becomes(lambda m, x: x), RuleError, "…has a replacement already…"),
    (lambda: px.module(3), RuleError, "…takes the path of a module…"),
    (lambda: relu(lambda m, x: None)(FLAT), RuleError, "…a replacement returns an operand…"),
    (lambda: BOTH.becomes(lambda m, x: x)(given("s = aten.sin.default(x); c = aten.cos.default(x); s, c")),
     RuleError, "…of 2 results returns a tuple of 2 values…"),
    (lambda: relu(lambda m, x: m.call(torch.ops.aten.add_.Tensor, x, 1))(FLAT), RuleError, "…neither may write…"),
    (lambda: relu(lambda m, x: torch.mm(x, x))(FLAT), RuleError, "…the replacement raised RuntimeError: …"),
    (lambda: relu(lambda m, x: (x[0].zero_(), x * 2)[1])(FLAT), RuleError,
     "…the replacement calls aten.zero_.default, but returns another value: its effect would be lost…"),
    (lambda: relu(lambda m, x: x if x.sum() > 0 else -x)(FLAT), RuleError, "…known only at run time…"),
    (lambda: relu(lambda m, x: torch.rand_like(x))(FLAT), RuleError, "…the replacement draws random numbers…"),
    (lambda: relu(lambda m, x: torch.ops._c10d_functional.wait_tensor(x))(FLAT), RuleError,
     "…the match is pure, but the replacement completes;…"),
    (lambda: relu(lambda m, x: m.parameter("a.b", torch.ones(1)))(FLAT), RuleError, "…cannot be the name of state…"),
    (lambda: relu(lambda m, x: m.parameter("a", 3))(FLAT), RuleError, "…is a tensor with numbers, not 3…"),
    (lambda: relu(lambda m, x: m.drop(x))(FLAT), RuleError, "…reads no state…"),
    (lambda: relu(lambda m, x: x)(UNKNOWN), RuleError, "the value of x is not known: apply px.infer before the rule"),
    (lambda: relu(lambda m, x: m["xx"])(FLAT), NamingError, "…has no variable 'xx'; did you mean 'x'…"),
    (lambda: relu(lambda m, x: x, where=lambda m: m.dtype("X"))(FLAT), NamingError, "…the rule has no variable…"),
    (lambda: relu(lambda m, x: x.tanh() if x.shape[0] == 4 else x)(DYNAMIC), RuleError, "…at run time…where=…"),
    (lambda: relu(lambda m, x: x.reshape(int(x.shape[0]), 4))(DYNAMIC), RuleError, "…at run time…"),
    (lambda: relu(lambda m, x: torch.autocast("cpu")(torch.cos)(x))(FLAT), RuleError, "…run in the modes of the match"),
    (lambda: relu(lambda m, x: x * nn.Parameter(torch.ones(2)))(FLAT), RuleError, "…add it with m.parameter"),
    # others
    (lambda: (edit := P.ir.Rewriter(FLAT.main)).erase("rely") or edit.after(9) or edit.graph(), px.errors.NamingError,
     "edits would be lost: the graph has no value or position 'rely', 9"),
    (lambda: P.history(FLAT, FLAT.main.nodes[0]), ArgumentError, "history takes the name of a node, not a Node; pass node.name"),
    (lambda: P.became(FLAT, 3), ArgumentError, "became takes the name of a node, not an int"),
    (lambda: P.pipeline_stage(FLAT, 0), ArgumentError,
     f"pipeline_stage {STAGES} a Program; px.lower_stages(program) makes them of a split one"),
    (lambda: P.split_by_tags(UNDEFINED, ["a"]), px.errors.InvalidProgram, "…'z'…"),
    (lambda: P.split_balanced(TWICE, 2), px.errors.InvalidProgram, "…'y' is used already…"),
    (lambda: P.sum_tied_gradients(MODEL), ArgumentError, f"sum_tied_gradients {STAGES} a Model"),
    (lambda: P.to_script(FLAT, rewrite=legalize), ArgumentError,
     "rewrite must be the source of a function, not a function; pass inspect.getsource(a_pass)"),
    (lambda: P.parse("models/tower.txt"), ParseError,
     f"line 1, column 1: expected 'program', found 'models'; {READS}\n    models/tower.txt\n    ^"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "message"), CALLS, ids=[str(number) for number in range(len(CALLS))]
)
def test_wrong_calls(call: Callable[[], object], error: type[Exception], message: str) -> None:
    """A message is written in full, or in parts between dots."""
    with pytest.raises(error) as caught:
        call()
    assert re.fullmatch(
        ".*".join(map(re.escape, message.split("…"))), str(caught.value), re.DOTALL
    ), str(caught.value)


def test_the_step_is_named() -> None:
    with pytest.raises(ArgumentError) as caught:
        P.transform(FLAT, soften, forgets)
    assert caught.value.__notes__ == ["in step 2 of 2, forgets"]


def test_a_pass_over_fx_graphs_is_no_step() -> None:
    """Python's error has a note; other errors of a step have none of ours."""
    with pytest.raises(AttributeError) as caught:
        px.transform(FLAT, legalize)
    assert caught.value.__notes__ == [
        "legalize was passed a purefx Program; px.from_fx_pass makes a step of a pass over fx graphs"
    ]

    def other(program: px.Program) -> px.Program:
        return program.main.nodes[0].nothing  # pyright: ignore[reportAttributeAccessIssue]

    with pytest.raises(AttributeError) as caught:
        px.transform(FLAT, other)
    assert not hasattr(caught.value, "__notes__")


def test_files_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    px.save(FLAT, tmp_path / "model.purefx")
    for name, near in (
        ("modl.purefx", "; did you mean 'model.purefx'?"),
        ("other.purefx", ""),
        ("gone/model.purefx", ""),
    ):
        with pytest.raises(FileNotFoundError) as caught:
            px.load(tmp_path / name)
        assert caught.value.errno == 2
        assert str(caught.value) == f"[Errno 2] no such file{near}: {str(tmp_path / name)!r}"
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ArgumentError) as wrong:
        P.load("model.purefx", state=MODEL)
    assert (
        str(wrong.value)
        == "`state` must map names of slots to tensors, like model.state_dict(), not be a Model"
    )


def test_python_says_what_is_near() -> None:
    """It looks into the object that an error of an attribute is about."""
    with pytest.raises(AttributeError) as caught:
        P.import_eq  # noqa: B018  # pyright: ignore[reportUnusedExpression]
    assert (caught.value.name, caught.value.obj) == ("import_eq", px)
