"""State of every kind of tensor and object, at every function that reads values: right, or refused with a `PurefxError`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

import purefx as px
from purefx import rules
from purefx.ir.state import same_value
from purefx.laws import value_differences
from tests.models import flat, module_class, parent

pytestmark = [
    pytest.mark.usefixtures("unverified"),
    pytest.mark.filterwarnings("ignore:Sparse .* tensor support is in beta state"),
    pytest.mark.filterwarnings("ignore:The PyTorch API of"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
    pytest.mark.filterwarnings("ignore:torch.quantize_per_"),
    pytest.mark.filterwarnings("ignore:TypedStorage is deprecated"),
    pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental"),
]

EYE = torch.eye(4)
BYTES = torch.arange(16, dtype=torch.uint8)
UINT4: torch.dtype = vars(torch)["uint4"]  # torch declares no type for it
QUANTIZED = torch.quantize_per_tensor

VALUES: dict[str, Callable[[], Any]] = {
    "dense": lambda: EYE.clone(),
    "coo": EYE.to_sparse,
    "uncoalesced": lambda: torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (3, 3)),
    "hybrid": lambda: torch.ones(2, 2, 2).to_sparse(1),
    "csr": EYE.to_sparse_csr,
    "csc": EYE.to_sparse_csc,
    "bsr": lambda: EYE.to_sparse_bsr((2, 2)),
    "bsc": lambda: EYE.to_sparse_bsc((2, 2)),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([EYE[0], EYE[0, 1:]], layout=torch.jagged),
    "quantized": lambda: QUANTIZED(EYE, 0.1, 0, torch.qint8),
    "quantized by channel": lambda: torch.quantize_per_channel(
        EYE, torch.ones(4), torch.zeros(4), 0, torch.qint8
    ),
    "complex": lambda: torch.tensor([1j, 2.0]),
    "conjugate": lambda: torch.tensor([1j, 2.0]).conj(),
    "negative": lambda: torch.tensor([1j, 2.0]).conj().imag,
    "half complex": lambda: torch.zeros(4, dtype=torch.complex32),
    "float8": lambda: EYE.to(torch.float8_e4m3fn),
    "float4": lambda: BYTES.view(torch.float4_e2m1fn_x2),
    "int4": lambda: BYTES.view(UINT4),
    "bits": lambda: BYTES.view(torch.bits8),
    "subclass": lambda: TwoTensor(EYE.clone(), EYE.clone()),
    "opaque": EYE.to_mkldnn,
    "meta": lambda: torch.ones(3, device="meta"),
    "empty": lambda: torch.ones(0),
    "expanded": lambda: torch.ones(1).expand(4),
    "generator": lambda: torch.Generator().manual_seed(3),
    "object": lambda: object(),
    "text": lambda: "it's",
    "size": lambda: torch.Size([2]),
}

STAGES: dict[str, Callable[[px.Program], px.Program]] = {
    "flat": lambda program: program,
    "tree": px.outline,
    "inputs": px.lift_state,
}


@functools.cache
def program_of(kind: str) -> px.Program:
    """Return a program that reads a value and returns it."""
    value, stack = VALUES[kind](), (px.Frame("a"),)
    nodes = [
        px.Node("p", px.Get("a.p"), (), (), stack),
        px.Node("y", px.op(torch.ops.aten.add.Tensor), (px.Ref("x"), 1), (), stack),
    ]
    if not isinstance(value, torch.Tensor):
        value = px.ir.Slot(px.ir.SlotKind.CONSTANT, value, 0, 0)
    program = flat(nodes, (px.Ref("y"), px.Ref("p")), "x")
    return program.with_state(add={"a.p": value})


def saved(program: px.Program, folder: Path) -> px.Program:
    """Return a program that was saved and loaded."""
    px.save(program, folder / "program.px")
    return px.load(folder / "program.px")


def changed(program: px.Program) -> px.Program:
    """Return the program with one more piece of state."""
    return program.with_state(add={"more": torch.ones(1)})


READERS: dict[str, Callable[[px.Program, Path], Any]] = {
    "infer": lambda program, _: px.infer(program),
    "text": lambda program, _: px.parse(program.text()),
    "shown": lambda program, _: (str(program), repr(program), program._repr_html_()),
    "diff": lambda program, _: str(px.diff(program, changed(program))),
    "equality": lambda program, _: px.alpha_equal(program, px.transform(program)),
    "saved": saved,
    "script": lambda program, _: px.to_script(program),
    "lower": lambda program, _: px.lower(program),
    "interpreter": lambda program, _: px.lower(program, to="interpreter"),
    "constants": lambda program, _: px.fold_constants(program),
    "expressions": lambda program, _: px.eliminate_common_subexpressions(program),
    "dtype": lambda program, _: px.to_dtype(program, torch.float64),
    "device": lambda program, _: px.to_device(program, "meta"),
    "rules": lambda program, _: rules.algebra(program),
}


@pytest.mark.parametrize("kind", VALUES)
def test_it_is_valid_and_every_reader_accepts_or_refuses_it(kind: str, tmp_path: Path) -> None:
    for stage, step in STAGES.items():
        program = step(program_of(kind))
        for infer in (False, True):
            assert px.verify(program, infer=infer) == (), stage
        for reader in READERS.values():
            with contextlib.suppress(px.PurefxError):
                reader(program, tmp_path)


@pytest.mark.parametrize("kind", VALUES)
def test_copies_and_files_have_the_same_value(kind: str, tmp_path: Path) -> None:
    program = px.transform(program_of(kind))
    value = program_of(kind).state["a.p"].value
    for copied in (
        lambda: px.lower(program).get_submodule("a").p,
        lambda: saved(program, tmp_path).state["a.p"].value,
    ):
        try:
            result = copied()
        except px.PurefxError:
            continue
        assert type(result) is type(value)
        if isinstance(value, torch.Tensor):
            pairs = zip(rows(result), rows(value), strict=True)
            assert all(same_value(left, right) for left, right in pairs)


def rows(value: torch.Tensor) -> list[torch.Tensor]:
    """Return tensors that have sizes: `same_value` is false for two nested tensors."""
    return [part.detach() for part in value.unbind()] if value.is_nested else [value]


Sum = parent(lin=lambda: torch.nn.Linear(4, 4))
USES: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "coo": lambda p, x: torch.sparse.mm(p, x),
    "csr": lambda p, x: torch.sparse.mm(p, x),
    "csc": lambda p, x: torch.sparse.mm(p, x),
    "bsr": lambda p, x: p.to_dense() @ x,
    "bsc": lambda p, x: p.to_dense() @ x,
    "uncoalesced": lambda p, x: x * p.to_dense().sum(),
    "conjugate": lambda p, x: x * p.sum().imag,
    "float8": lambda p, x: p.to(x.dtype) @ x,
    "subclass": lambda p, x: x * (p * 2).sum(),
}


@pytest.mark.parametrize("kind", USES)
def test_exported_programs_with_it_infer_and_run(kind: str) -> None:
    class Child(Sum):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("p", VALUES[kind]())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return USES[kind](self.p, self.lin(x))

    model = module_class("Twice", lambda self, x: self.c(self.c(x)), c=Child)().requires_grad_(
        False
    )
    x = torch.arange(16.0).reshape(4, 4)
    program = px.capture(model, (x,))
    for result in (program, px.transform(program), px.infer(px.transform(program))):
        assert px.verify(result, infer=True) == ()
        for number in range(2):
            given = x + number
            assert value_differences(px.lower(result)(given), model(given)) == []


@pytest.mark.parametrize("device", ["meta"])
def test_a_generator_and_a_tensor_on_another_device_infer(device: str) -> None:
    class Draws(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.source = torch.Generator().manual_seed(3)
            self.register_buffer("p", torch.ones(3, device=device))

        def forward(self, x: torch.Tensor) -> Any:
            return x + torch.rand(3, generator=self.source), self.p

    program = px.capture(Draws(), (torch.ones(3),))
    for result in (program, px.transform(program)):
        assert px.verify(result, infer=True) == ()
