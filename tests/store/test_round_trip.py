"""``load(save(p)) == p``: for generated programs of every tier and stage, and what a program is made of, one by one."""

from __future__ import annotations

import math
import operator
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve
from torch import nn
from torch.utils import _pytree as pytree

import purefx as px
from purefx.ir.operators import op_of
from purefx.ir.torch_private import storage_key
from purefx.laws.tiers import Tier, drawn_cases
from tests.models import ADD, Aliased, Shared, exported, flat, parent


def again(program: px.Program, folder: Path, **options: Any) -> px.Program:
    """Save a program and load it."""
    path = folder / "program.purefx"
    allow = set(program.foreign_operators) - {*options.get("operators", ())}  # what is drawn prints
    assert allow <= {"aten._print.default"}
    px.save(program, path, allow=program.foreign_operators)
    return px.load(path, allow=allow, **options)


def assert_same(found: px.Program, program: px.Program) -> None:
    """Equality, and what it leaves out: facts, which tensors share memory, and where in it they lie."""
    assert found == program
    assert px.digest(found) == px.digest(program)
    assert found.facts == program.facts
    assert found.state.order == program.state.order
    for name, slot in program.state.pairs:
        mine, theirs = found.state[name].value, slot.value
        if isinstance(theirs, torch.Tensor):
            assert type(mine) is type(theirs)
            assert mine.storage_offset() == theirs.storage_offset()
            assert mine.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
    for left, right in zip(program.nodes(), found.nodes(), strict=True):
        if isinstance(left[1].do, px.Op) and isinstance(right[1].do, px.Op):
            assert left[1].do.target is right[1].do.target


@pytest.mark.parametrize(("tier", "stage", "count"), [("toy", "tree", 12), ("aten", "tokens", 8)])
def test_generated_programs(tier: Tier, stage: Any, count: int, tmp_path: Path) -> None:
    cases = drawn_cases(tier, stage, count)
    assert len(cases) >= count // 2
    for case in cases:
        assert_same(again(case.program, tmp_path), case.program)


class Sizes(parent(inner=lambda: Scaled())):
    """Dynamic sizes, sizes that only a run knows, branches, a preserved signature, pytrees."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Any]:
        z = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (self.inner(x),))
        return {"z": z.reshape(x.shape[0] * 3), "n": x.shape[0] * 2 + 1, "found": y.nonzero()}


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * x.shape[0]


def test_dynamic_sizes_and_what_the_pipeline_makes_of_them(tmp_path: Path) -> None:
    size = torch.export.Dim("n", min=2, max=64)
    arguments = (torch.ones(4, 3), torch.ones(4, 3))
    ep = torch.export.export(
        Sizes(),
        arguments,
        dynamic_shapes=({0: size}, {0: size}),
        preserve_module_call_signature=("inner",),
    )
    program = px.import_ep(ep)
    found = again(program, tmp_path)
    assert_same(found, program)
    for (_, node), (_, mine) in zip(program.nodes(), found.nodes(), strict=True):
        assert str(mine.meta.get("val")) == str(node.meta.get("val"))
        assert mine.meta.get("stack_trace") == node.meta.get("stack_trace")
    assert px.verify(found, infer=True) == ()
    assert px.transform(found) == px.transform(program)
    module = px.lower(px.transform(found))
    assert module(torch.ones(7, 3), torch.ones(7, 3))["n"] == 15
    with pytest.raises(px.errors.InputValueError):
        module(torch.ones(65, 3), torch.ones(65, 3))


class Powers(nn.Module):
    """Returns sizes of many symbols, large ones, and sizes that are not polynomials."""

    def forward(self, xs: list[torch.Tensor]) -> tuple[Any, ...]:
        n, m = xs[0].shape[0], xs[1].shape[0]
        return torch.cat(xs), n**m, n**70, n // m, n % m, max(n, m), n / m, n > m, -n


def test_a_size_that_is_not_read_is_not_written(tmp_path: Path) -> None:
    """A file that cannot be loaded is worse than one without a size."""
    xs = [torch.ones(number + 2) for number in range(66)]
    sizes = ([{0: torch.export.Dim(f"d{number}")} for number in range(66)],)
    program = px.import_ep(torch.export.export(Powers(), (xs,), dynamic_shapes=sizes))
    found = again(program, tmp_path)
    assert_same(found, program)
    pairs = zip(program.nodes(), found.nodes(), strict=True)
    lost = {
        node.name
        for (_, node), (_, mine) in pairs
        if str(mine.meta.get("val")) != str(node.meta.get("val"))
    }
    assert lost == {"cat", "pow_1", "pow_2"}


def test_what_a_decomposed_program_came_from_is_kept(tmp_path: Path) -> None:
    """``from_node`` tells the pipeline what an operator was; two nodes never get one fake tensor."""
    program = px.import_ep(exported(Shared(), torch.ones(3, 4), decomposed=True))
    found = again(program, tmp_path)
    for (_, node), (_, mine) in zip(program.nodes(), found.nodes(), strict=True):
        history, kept = node.meta["from_node"], mine.meta["from_node"]
        assert [(part.name, part.target, part.pass_name) for part in kept] == [
            (part.name, part.target, part.pass_name) for part in history
        ]
    values = [id(node.meta["val"]) for _, node in found.nodes()]
    assert len(set(values)) == len(values)
    assert px.transform(found) == px.transform(program)


def test_the_file_is_the_same_each_time(tmp_path: Path) -> None:
    program = px.import_ep(exported(Aliased(), torch.ones(1, 2)))
    for name in "ab":
        px.save(program, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    px.save(px.load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def holding(**values: Any) -> px.Program:
    """Return a program with these constants in its state, cells and storages numbered as the tensors are."""
    cells: dict[Any, int] = {}
    storages: dict[Any, int] = {}
    slots: dict[str, px.ir.Slot] = {}
    for name, value in values.items():
        is_tensor = isinstance(value, torch.Tensor) and value.layout is torch.strided
        storage = storages.setdefault(storage_key(value) if is_tensor else id(value), len(storages))
        kind = (
            px.ir.SlotKind.PARAMETER if isinstance(value, nn.Parameter) else px.ir.SlotKind.BUFFER
        )
        kind = kind if isinstance(value, torch.Tensor) else px.ir.SlotKind.CONSTANT
        persistent = kind is px.ir.SlotKind.PARAMETER
        slots[name] = px.ir.Slot(
            kind, value, cells.setdefault(id(value), len(cells)), storage, persistent
        )
    return px.Program.of(
        {"": px.Graph((), (), ())}, state=px.ir.State(tuple(slots), px.ir.pmap(slots))
    )


MEMORY = torch.arange(24.0)

KINDS: dict[str, Callable[[], dict[str, torch.Tensor]]] = {
    "scalar": lambda: {"a": torch.tensor(-0.0)},
    "empty": lambda: {"a": torch.empty(0, 3), "b": torch.empty(3, 0, 2).transpose(0, 1)},
    "transposed": lambda: {"a": torch.randn(2, 3).t(), "b": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)},
    "views of one memory": lambda: {"a": MEMORY[2:8], "b": MEMORY.view(4, 6)[:, ::2], "c": MEMORY, "d": MEMORY[5:5]},
    "a view of more memory": lambda: {"a": torch.arange(10)[3:5]},
    "overlapping": lambda: {"a": torch.ones(1).expand(5), "b": torch.arange(6.0).as_strided((3, 3), (1, 1))},
    "other types in one memory": lambda: {"a": MEMORY, "b": MEMORY.view(torch.int32)},
    "numbers": lambda: {
        str(dtype).replace(".", "_"): torch.tensor([0, 1, 3]).to(dtype)
        for dtype in (
            torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64,
            torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128, torch.float8_e4m3fn,
            torch.float8_e5m2, torch.float8_e4m3fnuz,
        )
    },
    "no numbers": lambda: {"a": torch.tensor([math.nan, -math.nan, math.inf, -math.inf, -0.0])},
    "parameters": lambda: {
        "a": nn.Parameter(torch.randn(2, 3)),
        "b": nn.Parameter(torch.randn(2).bfloat16(), requires_grad=False),
        "c": nn.Parameter(torch.tensor([1, 2]), requires_grad=False),
        "d": torch.ones(2, requires_grad=True),
    },
    "a parameter in a buffer's memory": lambda: {"a": MEMORY[1:], "b": nn.Parameter(MEMORY[:3])},
    "odd names": lambda: {"__metadata__": torch.ones(1), "purefx.program": torch.ones(2), "purefx.storage.0": torch.ones(3)[1:]},
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_of_every_kind(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(1)
    program = holding(**KINDS[kind]())
    found = again(program, tmp_path)
    assert_same(found, program)
    for name in program.state:
        assert found.state[name].value is not program.state[name].value


def test_writing_to_a_loaded_view_writes_to_its_memory_and_to_no_file(tmp_path: Path) -> None:
    found = again(
        holding(whole=torch.zeros(4), part=(whole := torch.zeros(4))[1:3], other=whole), tmp_path
    )
    before = (tmp_path / "program.purefx").read_bytes()
    found.state["part"].value.fill_(7)
    assert found.state["other"].value.tolist() == [0, 7, 7, 0]
    assert found.state["whole"].value.tolist() == [0, 0, 0, 0]
    assert (tmp_path / "program.purefx").read_bytes() == before


def test_a_tensor_without_contents_stays_one(tmp_path: Path) -> None:
    found = again(holding(a=torch.ones(2, 3, device="meta"), b=torch.ones(2)), tmp_path)
    assert found.state["a"].value.device.type == "meta"
    assert found.state["b"].value.tolist() == [1, 1]


def test_two_loads_without_weights_are_equal(tmp_path: Path) -> None:
    tied = nn.ModuleDict({"a": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    programs = [
        holding(**{name.replace(".", "_"): value for name, value in tied.named_parameters()})
    ]
    tied["b"].weight = tied["a"].weight
    programs.append(
        holding(
            **{
                name.replace(".", "_"): value
                for name, value in tied.named_parameters(remove_duplicate=False)
            }
        )
    )
    for number, program in enumerate(programs):
        px.save(program, tmp_path / f"{number}.purefx", weights=False)
    plain, same, other = (
        px.load(tmp_path / "0.purefx"),
        px.load(tmp_path / "0.purefx"),
        px.load(tmp_path / "1.purefx"),
    )
    assert (
        plain == same
        and hash(plain) == hash(same)
        and px.digest(plain) == px.digest(same)
        and not px.diff(plain, same)
    )
    assert plain != other and px.diff(plain, other), "there two slots are one tensor"


def test_other_tools_find_the_weights(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    model = nn.Sequential(nn.Linear(2, 3), nn.Conv2d(2, 3, 2).to(memory_format=torch.channels_last))
    px.save(holding(**dict(model.named_parameters())), tmp_path / "program.purefx")
    found = load_file(tmp_path / "program.purefx")
    del found["purefx.program"]
    assert list(found) == sorted(model.state_dict())
    assert all(torch.equal(found[name], value) for name, value in model.state_dict().items())


def refused(program: px.Program, folder: Path, message: str) -> None:
    """Save a program, which must be refused before anything is written."""
    with pytest.raises(px.errors.UnsupportedProgram, match=message):
        px.save(program, folder / "program.purefx")
    assert list(folder.iterdir()) == []


@pytest.mark.filterwarnings(
    "ignore:.*quantized:UserWarning", "ignore:torch.quantize_per_tensor:UserWarning"
)
def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    class Counted(torch.Tensor):
        pass

    quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
    lazy = torch.ones(2, dtype=torch.complex64).conj()
    for value in (
        torch.ones(2).to_sparse(),
        torch.ones(2).as_subclass(Counted),
        quantized,
        lazy,
        lazy.imag,
    ):
        refused(
            holding(a=value),
            tmp_path,
            r"the buffer 'a' is a .*, but a file holds plain strided tensors",
        )
    no_data = "holds a value that is not data and cannot be saved: line 4, column .*builtins.object"
    refused(holding(strings="opaque(", script=object()), tmp_path, no_data)
    refused(
        flat([px.Node("y", ADD, (px.Ref("x"), print_nothing))], px.Ref("y"), "x"),
        tmp_path,
        "builtins.function",
    )


def print_nothing() -> None:
    """Do nothing: a function that is no operator."""


LITERALS = (
    math.nan, -0.0, math.inf, -(2**63) - 1, True, 1, 1.0, complex(-0.0, math.nan), "opaque(", "a\n\x00\ud800\u202e",
    None, ..., torch.bfloat16, torch.channels_last, torch.device("cuda:1"), operator.add, torch.ops.aten.add.Tensor,
    slice(1, None, px.Ref("x")), px.ir.Items([1, (2,)]), px.ir.Record((("a\n", 1),)), range(3),
)  # fmt: skip


def test_literals_survive(tmp_path: Path) -> None:
    nodes = [
        px.Node(f"y{number}", px.Op("toy.take"), (px.Ref("x"), value))
        for number, value in enumerate(LITERALS)
    ]
    program = flat(nodes, px.Ref("y0"), "x")
    assert_same(again(program, tmp_path), program)


def test_plain_functions_are_given_when_loading(tmp_path: Path) -> None:
    """A function of the user's has no place in a registry: who saves says so, the file names it, the reader gives it."""

    def twice(x: torch.Tensor) -> torch.Tensor:
        return x + x

    op = op_of(twice)
    program = flat([px.Node("y", op, (px.Ref("x"),))], px.Ref("y"), "x")
    with pytest.raises(
        px.errors.UnsupportedProgram,
        match=r"may not name: '.*twice' \(is not registered here\).*allow={'.*twice'}",
    ):
        px.save(program, tmp_path / "program.purefx")
    px.save(program, tmp_path / "program.purefx", allow={op.name})
    for allow in ((), {op.name}):
        with pytest.raises(
            px.errors.UnsupportedProgram, match=r"'.*twice' \(is not registered here\).*operators={"
        ):
            px.load(tmp_path / "program.purefx", allow=allow)
    found = px.load(tmp_path / "program.purefx", operators={op.name: twice})
    assert_same(found, program)
    assert px.lower(found)(torch.ones(2))[0].tolist() == [2, 2]


def test_custom_operators_are_found_where_they_are_registered(tmp_path: Path) -> None:
    with torch.library._scoped_library("purefx_store", "FRAGMENT") as library:
        library.define("double(Tensor x) -> Tensor")
        program = flat(
            [px.Node("y", op_of(torch.ops.purefx_store.double.default), (px.Ref("x"),))],
            px.Ref("y"),
            "x",
        )
        assert_same(again(program, tmp_path), program)
    with pytest.raises(px.errors.UnsupportedProgram, match=r"purefx_store\.double\.default"):
        px.load(tmp_path / "program.purefx")


Point = namedtuple("Point", ["x", "y"])  # noqa: PYI024  # pyright: ignore[reportUntypedNamedTuple]  as users write them


def test_pytrees_of_registered_and_given_types(tmp_path: Path) -> None:
    class Pair:
        pass

    pytree.register_pytree_node(
        Pair, lambda _: ([], None), lambda _, __: Pair(), serialized_type_name="tests.store.Pair"
    )
    leaf = pytree.treespec_leaf()
    spec = pytree.TreeSpec(
        Pair, [["x"], {"n": (1, None)}], [leaf, pytree.tree_structure(OrderedDict(a=1))]
    )
    program = flat([], (px.Ref("x"), px.Ref("x")), "x")
    program = program.evolve(signature=evolve(program.signature, out_spec=spec))
    try:
        assert again(program, tmp_path).signature.out_spec == spec
    finally:
        pytree._deregister_pytree_node(Pair)
    with pytest.raises(
        px.errors.StoreError,
        match=r"registered type '.*Pair' cannot be read .* import tests.store.test_round_trip, which registers it",
    ):
        px.load(tmp_path / "program.purefx")

    named = program.evolve(
        signature=evolve(program.signature, out_spec=pytree.tree_structure(Point(1, 2)))
    )
    with pytest.raises(px.errors.StoreError, match="pass the class in `types`"):
        again(named, tmp_path)
    found = px.load(tmp_path / "program.purefx", types=[Point])
    assert_same(found, named)
    assert px.lower(found)(torch.ones(2)).y.tolist() == [1, 1]


# ``save(weights=False)`` and ``load(state=...)``: ties and views are those of the program.


class Net(nn.Module):
    """A tied weight, a buffer that is saved, one that is not, a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(2, 2), nn.Linear(2, 2)
        self.other.weight = self.one.weight
        self.register_buffer("seen", torch.zeros(2))
        self.register_buffer("table", torch.arange(2.0), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.add_(1)
        return self.other(self.one(x)) + self.table + self.seen + torch.tensor([1.0, 2.0])


X = torch.ones(1, 2)


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    path = tmp_path / "bare.purefx"
    px.save(px.import_ep(exported(Net(), X)), path, weights=False)
    return path


def test_without_state_there_are_stand_ins(bare: Path) -> None:
    program = px.load(bare)
    assert {name: slot.value.device.type for name, slot in program.state.pairs} == {
        "one.weight": "meta", "one.bias": "meta", "other.weight": "meta", "other.bias": "meta", "seen": "meta",
        "table": "cpu", "lifted_tensor_0": "cpu",
    }  # fmt: skip
    assert program.state["one.weight"].value is program.state["other.weight"].value
    assert program.state["table"].value.tolist() == [0, 1]


def test_a_state_dict_is_all_that_is_missing(bare: Path) -> None:
    model = Net()
    program = px.load(bare, state=model.state_dict())
    assert storage_key(program.state["one.weight"].value) == storage_key(
        model.one.weight
    )  # shared, not copied
    assert isinstance(program.state["one.weight"].value, nn.Parameter)
    assert program.state["one.weight"].value is program.state["other.weight"].value
    module = px.lower(px.transform(program))
    for _ in range(2):
        torch.testing.assert_close(module(X), model(X), rtol=0, atol=0)


def test_what_is_given_goes_before_what_the_file_has(tmp_path: Path) -> None:
    program = px.import_ep(exported(Net(), X))
    px.save(program, tmp_path / "full.purefx")
    mine = torch.tensor([5.0, 6.0])
    assert px.load(tmp_path / "full.purefx", state=program.state) == program
    found = px.load(tmp_path / "full.purefx", state={"seen": mine})
    assert found.state["seen"].value is mine
    assert found.state["one.bias"] == program.state["one.bias"]
    tied = px.load(tmp_path / "full.purefx", state={"other.weight": torch.eye(2)})
    assert tied.state["one.weight"].value.tolist() == [[1, 0], [0, 1]]
    assert tied.state["one.weight"].value is tied.state["other.weight"].value


def given(**changes: Any) -> dict[str, Any]:
    return {
        key: value for key, value in {**Net().state_dict(), **changes}.items() if value is not None
    }


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (given(seen=None), "neither the file nor `state` has 'seen'"),
        ({}, "neither the file nor `state` has 'one.weight', 'one.bias'"),
        (
            given(seen=torch.ones(3)),
            r"the slot 'seen' is torch.float32 \(2,\), and `state` has torch.float32 \(3,\)",
        ),
        (given(seen=torch.ones(2).double()), "has torch.float64"),
        (given(seen=[1.0, 2.0]), "`state` has a list"),
        (
            {f"module.{key}": value for key, value in given().items()},
            "not slots of the program: 'module.seen', 'module.one.weight'",
        ),
        (
            given(**{"other.weight": torch.ones(2, 2)}),
            "'one.weight', 'other.weight' are one tensor, but `state` has several",
        ),
    ],
)
def test_what_does_not_fit_is_told(state: dict[str, Any], message: str, bare: Path) -> None:
    with pytest.raises(px.errors.StoreError, match=message):
        px.load(bare, state=state)


def test_views_are_made_again(tmp_path: Path) -> None:
    """A state dict that was saved by other means has copies of views; the program's memory is one."""
    model = Aliased()
    px.save(px.import_ep(exported(model, X)), tmp_path / "bare.purefx", weights=False)
    model(X)
    copies = {name: value.clone() for name, value in model.state_dict().items()}
    for state in (copies, model.state_dict()):
        program = px.load(tmp_path / "bare.purefx", state=state)
        whole, part = program.state["whole"].value, program.state["part"].value
        assert storage_key(whole) == storage_key(part)
        assert (part.storage_offset(), whole.tolist()) == (1, [0, 1, 1, 0])
        assert px.verify(program) == ()
    lowered = px.lower(px.transform(px.load(tmp_path / "bare.purefx", state=copies)))
    for _ in range(2):
        torch.testing.assert_close(lowered(X), model(X), rtol=0, atol=0)
    with pytest.raises(
        px.errors.StoreError, match="share memory, but their values in `state` contradict"
    ):
        px.load(tmp_path / "bare.purefx", state={**copies, "part": torch.zeros(2)})


def test_numbers_that_lie_otherwise_are_put_where_the_program_has_them(tmp_path: Path) -> None:
    model = nn.Conv2d(2, 3, 1).to(memory_format=torch.channels_last)
    px.save(
        px.import_ep(exported(model, torch.ones(1, 2, 4, 4))),
        tmp_path / "bare.purefx",
        weights=False,
    )
    state = {
        name: value.clone(memory_format=torch.contiguous_format)
        for name, value in model.state_dict().items()
    }
    weight = px.load(tmp_path / "bare.purefx", state=state).state["weight"].value
    assert weight.stride() == model.weight.stride()
    assert torch.equal(weight, model.weight)


def test_devices(tmp_path: Path, bare: Path) -> None:
    path = tmp_path / "full.purefx"
    px.save(px.import_ep(exported(nn.Linear(2, 2), X)), path)
    assert px.load(path, device="cpu").state["weight"].value.device.type == "cpu"
    if not torch.cuda.is_available():
        with pytest.raises(px.errors.UnsupportedProgram, match="device 'cuda' is not available"):
            px.load(path, device="cuda")
    with pytest.raises(px.errors.UnsupportedProgram, match="device 'moon' is not available"):
        px.load(path, device="moon")


def test_a_file_does_not_name_flat_apply() -> None:
    """The message says what the operator is."""
    module, graph = torch.nn.Module(), torch.fx.Graph()
    module.function = module.arguments = pytree.tree_structure(((1,), {}))
    x = graph.placeholder("x")
    specs = graph.get_attr("function"), graph.get_attr("arguments")
    graph.output(graph.call_function(torch.ops.higher_order.flat_apply, (*specs, x)))
    program = px.import_fx(torch.fx.GraphModule(module, graph))
    with pytest.raises(px.errors.UnsupportedProgram, match="calls the function that its first"):
        px.save(program, "unused")
