"""Names are data: hostile ones are refused or harmless at every door."""

from __future__ import annotations

import builtins
import copy
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import purefx as px
from purefx.ir.operators import op_of
from tests.models import NEG, flat, parent

CORPUS = (
    "x=RAN.append(1)",
    "x):\n    RAN.append(1)\n    return (lambda self",
    "x\nRAN.append(1)\ny",
    'x"); RAN.append(1); ("',
    "x'); RAN.append(1); ('",
    "a=RAN.append(1), min",
    "\x1b[2Jx", "x\u202ey", "x\u2028y", "\ud800", "x\x00", "x\\", "{RAN.append(1)}", "%(RAN.append(1))s", "__class__", "",
)  # fmt: skip

Change = Callable[[torch.export.ExportedProgram, str], None]


class Model(parent(linear=lambda: nn.Linear(2, 2), seen=lambda: torch.ones(2))):
    def forward(self, x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
        return self.linear(x).clamp(min=0.5) + y + self.seen


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that hostile names append to."""
    found: list[int] = []
    monkeypatch.setattr(builtins, "RAN", found, raising=False)
    return found


def _node(ep: torch.export.ExportedProgram, op: str, number: int) -> torch.fx.Node:
    return [node for node in ep.graph.nodes if node.op == op][number]


def _placeholder(ep: torch.export.ExportedProgram, name: str) -> None:
    node = _node(ep, "placeholder", -1)
    for spec in ep.graph_signature.input_specs:
        if spec.arg.name == node.name:
            spec.arg.name = name
    node.name = name
    node.target = name


def _value(ep: torch.export.ExportedProgram, name: str) -> None:
    _node(ep, "call_function", 0).name = name


def _keyword(ep: torch.export.ExportedProgram, name: str) -> None:
    _node(ep, "call_function", 1).kwargs = {name: 0.5}


def _slot(ep: torch.export.ExportedProgram, name: str) -> None:
    for spec in ep.graph_signature.input_specs:
        if spec.target == "seen":
            spec.target = name
    ep.state_dict[name] = ep.state_dict.pop("seen")


def _argument(ep: torch.export.ExportedProgram, name: str) -> None:
    signature = ep.module_call_graph[0].signature
    assert signature is not None
    signature.forward_arg_names = [name, "y"]


def _module(ep: torch.export.ExportedProgram, name: str) -> None:
    _node(ep, "call_function", 0).meta["nn_module_stack"] = {"L": ("", "Model"), name: (name, name)}


def _trace(ep: torch.export.ExportedProgram, name: str) -> None:
    node = _node(ep, "call_function", 0)
    node.meta["stack_trace"] = f'  File "{name}", line 1, in {name}\n    {name}\n'
    node.target, node.args = (
        torch.ops.aten.mm.default,
        (_node(ep, "placeholder", -1),) * 2,
    )  # of sizes that do not fit


def _string(ep: torch.export.ExportedProgram, name: str) -> None:
    node, operand = _node(ep, "call_function", 1), _node(ep, "call_function", 0)
    node.target, node.args, node.kwargs = (
        torch.ops.aten.div.Tensor_mode,
        (operand, operand),
        {"rounding_mode": name},
    )


PLACES: tuple[Change, ...] = (
    _placeholder,
    _value,
    _keyword,
    _slot,
    _argument,
    _module,
    _trace,
    _string,
)


def outputs(ep: torch.export.ExportedProgram, folder: Path) -> Iterator[str]:
    """Take an exported program through every door; iterate over all that is said."""
    try:
        program = px.import_ep(ep)
        tree = px.transform(program)
    except px.PurefxError as error:
        yield str(error)
        return
    yield program.text()
    yield px.digest(program)
    given = {name: slot.value for name, slot in program.state.pairs}
    assert px.parse(program.text(), state=given) == program
    px.save(program, folder / "program.purefx")
    assert px.load(folder / "program.purefx") == program
    yield str(px.diff(program, tree))
    yield from lowered(tree, "graph_module")


def lowered(program: px.Program, *ways: str) -> Iterator[str]:
    """Lower a program, run it, look at it, have torch compile it; iterate over the errors of ours, and all text of graphs."""
    for to in ways:
        module = px.lower(program, to=to)  # type: ignore[arg-type]
        for use in (
            _call,
            _graphs,
            _recompiled,
            copy.deepcopy,
            lambda made: pickle.loads(pickle.dumps(made)),
        ):
            try:
                use(module)
            except px.PurefxError as error:
                yield str(error)
            except (RuntimeError, TypeError) as error:  # the dispatcher's: the program is nonsense
                yield "\n".join(getattr(error, "__notes__", []))


def _call(module: Any) -> None:
    module(torch.ones(1, 2), y=torch.ones(1, 2))


def _graphs(module: Any) -> None:
    for part in module.modules():
        str(getattr(part, "graph", ""))
        str(getattr(part, "code", ""))


def _recompiled(module: Any) -> None:
    for part in module.modules():
        if isinstance(getattr(part, "graph", None), torch.fx.Graph):
            torch.fx.GraphModule(part, part.graph)
        if hasattr(part, "recompile"):
            part.recompile()
    _call(module)


@pytest.mark.usefixtures("unverified")
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__.strip("_"))
def test_exported_programs(place: Change, ran: list[int], tmp_path: Path) -> None:
    exported = torch.export.export(Model(), (torch.ones(1, 2),), {"y": torch.ones(1, 2)})
    accepted = 0
    for name in CORPUS:
        ep = copy.deepcopy(exported)
        place(ep, name)
        said = list(outputs(ep, tmp_path))
        accepted += len(said) > 1
        for text in said:
            assert all(char.isprintable() or char == "\n" for char in text), (name, text)
        assert ran == [], name
    if place is _keyword:
        assert accepted == 0, "no operator has such an argument"
    else:
        assert accepted == len(CORPUS) if place in (_trace, _string) else 0 < accepted < len(CORPUS)


@pytest.mark.parametrize("name", CORPUS[:13])
def test_programs_by_hand(name: str, ran: list[int], tmp_path: Path) -> None:
    """Any name runs, because none is compiled; where torch would compile it, it is renamed or refused, and no file takes it."""
    weight = px.ir.Slot(px.ir.SlotKind.BUFFER, torch.ones(2), 0, 0)
    slot = f"m.{name}"
    owners = [slot[:place] for place, char in enumerate(slot) if char == "."]
    nodes = [
        px.Node(f"{name}1", px.Get(slot)),
        px.Node(f"{name}2", op_of(torch.ops.aten.mul.Tensor), (px.Ref(name), px.Ref(f"{name}1"))),
        px.Node(f"{name}3", NEG, (px.Ref(f"{name}2"),)),
    ]
    program = flat(
        nodes,
        px.Ref(f"{name}3"),
        name,
        state=px.ir.State((slot,), px.ir.pmap({slot: weight})),
        modules=tuple([px.ir.Module(path, name) for path in dict.fromkeys(["", *owners])]),
    )
    assert px.lower(program)(torch.ones(2))[0].tolist() == [-1, -1]
    assert px.parse(program.text(), state={slot: weight.value}) == program
    for text in (program.text(), str(px.diff(program, px.Program.of({"": px.Graph((), (), ())})))):
        assert all(char.isprintable() or char == "\n" for char in text)
    with pytest.raises(px.errors.InvalidProgram, match="is not a name of an input") as caught:
        px.save(program, tmp_path / "program.purefx")
    assert all(char.isprintable() or char == "\n" for char in str(caught.value))
    list(lowered(program, "graph_module", "interpreter"))
    assert ran == []


@pytest.mark.parametrize("word", ["class", "None", "def", "lambda"])
def test_keywords_are_not_identifiers(word: str, tmp_path: Path) -> None:
    """A program built by hand runs whatever its names are; graphs and code have another name, and files take none."""
    program = flat([px.Node("y", NEG, (px.Ref(word),))], px.Ref("y"), word)
    module: Any = px.lower(program)
    assert str(module.graph)
    assert module.code
    module.recompile()
    assert module(torch.ones(2))[0].tolist() == [-1, -1]
    with pytest.raises(
        px.errors.InvalidProgram, match=f"'{word}' is not a name of an input.*"
    ) as caught:
        px.save(program, tmp_path / "program.purefx")
    assert "rename it" in str(caught.value)
    with pytest.raises(px.errors.NamingError, match="a keyword"):
        px.name_inputs(px.import_ep(torch.export.export(nn.ReLU(), (torch.ones(2),))), [word])


def test_children_called_like_keywords_run(tmp_path: Path) -> None:
    """Eager accepts them, and so does everything but torch's own text of a graph, which says so instead of a SyntaxError."""
    kinds = {"class": nn.Linear(2, 2), "lambda": nn.Linear(2, 2)}

    class Holder(parent(kinds=lambda: nn.ModuleDict(kinds), **{"def": lambda: torch.ones(2)})):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.kinds["lambda"](self.kinds["class"](x)) + getattr(self, "def")

    model = Holder()
    program = px.transform(px.import_ep(torch.export.export(model, (torch.ones(1, 2),))))
    px.save(program, tmp_path / "program.purefx")
    module: Any = px.lower(px.load(tmp_path / "program.purefx"))
    assert list(module.state_dict()) == list(model.state_dict())
    assert str(module.graph)
    assert module.code
    with pytest.raises(px.errors.UnsupportedProgram, match="Python keywords"):
        module.recompile()
    torch.testing.assert_close(module(torch.ones(1, 2)), model(torch.ones(1, 2)))
