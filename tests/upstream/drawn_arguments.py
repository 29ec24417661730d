"""Arguments of calls of any operator, drawn from its schema, or taken from torch's own samples."""

from __future__ import annotations

import random
import sys
import types
import unittest
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from attrs import define, field

from purefx.ir.torch_private import schema_of

SHAPES = (
    (2, 3),
    (3,),
    (),
    (2, 3, 4),
    (2, 3, 4, 4),
    (1, 2, 3, 4, 4),
    (4, 4),
    (1, 4, 4),
    (2, 2, 8, 8),
    (1,),
)
DTYPES = (torch.float32,) * 5 + (
    torch.float64,
    torch.int64,
    torch.int64,
    torch.bool,
    torch.complex64,
    torch.bfloat16,
)

PLAIN: dict[str, tuple[Any, ...]] = {
    "IntType": (0, 1, 1, 2, 3, -1),
    "SymIntType": (0, 1, 1, 2, 3, -1),
    "FloatType": (0.0, 0.1, 0.5, 0.5, 0.9, 1.0),
    "NumberType": (0, 1, 2, 0.5, 0.0, 1.0),
    "BoolType": (True, False),
    "SymBoolType": (True, False),
    "LayoutType": (torch.strided,),
    "MemoryFormatType": (torch.contiguous_format, torch.preserve_format),
    "DeviceObjType": (torch.device("cpu"),),
    "StringType": (
        "none",
        "mean",
        "linear",
        "floor",
        "trunc",
        "sum",
        "constant",
        "reflect",
        "ij",
        "i,i->i",
        "full",
        "tanh",
    ),
    "GeneratorType": (None,),
    "NoneType": (None,),
    "ComplexType": (0.5 + 2j, 1 + 0j),
    "AnyType": (1, 2),
    "VarType": (1, 2),
}
"""Values by kind of type, where the name of the argument does not matter."""

INTEGERS: dict[str, tuple[Any, ...]] = {
    "device": (torch.device("cpu"),),
    "device_type": (torch.device("cpu"),),
    "layout": (torch.strided,),
    "memory_format": (torch.contiguous_format, torch.preserve_format, torch.channels_last),
}
"""What schemas call integers and Python does not, by name of argument."""

INDICES = (
    "index",
    "indices",
    "target",
    "offsets",
    "lengths",
    "indexes",
    "crow",
    "col_",
    "batch_sizes",
)
PER_CHANNEL = ("running", "mean", "var", "invstd", "save")
OFTEN_PER_CHANNEL = (
    "weight",
    "bias",
    "gamma",
    "beta",
    "scale",
    "scales",
    "zero_point",
    "zero_points",
    "noise",
)
TRANSPOSED = ("other", "mat2", "batch2", "tensor2", "vec2", "b")


def room(argument: Any, dtype: torch.dtype) -> Any:
    """Return an empty tensor, or two, that a result is put into, which makes it as large as it is."""
    kind = torch.int64 if within(argument.name, INDICES) else dtype
    made = [torch.empty(0, dtype=kind), torch.empty(0, dtype=kind)]
    return made if within(str(argument.type), ("[]", "List")) else made[0]


def within(name: str, words: Sequence[str]) -> bool:
    """Say whether a name has one of some words in it."""
    return any(word in name for word in words)


def with_room(target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with something for each result that an overload wants to put somewhere."""
    wanted = [
        each for each in schema_of(target).arguments if each.is_out and each.name not in kwargs
    ]
    return {**kwargs, **{each.name: room(each, torch.float32) for each in wanted}}


@define
class Arguments:
    """Draws the arguments of calls of one overload."""

    target: Any
    dice: random.Random
    forced: dict[str, Any] = field(factory=dict)
    shape: tuple[int, ...] = ()
    dtype: torch.dtype = torch.float32
    kind: str = "plain"

    def draw(self) -> tuple[list[Any], dict[str, Any]]:
        self.shape, self.dtype = self.dice.choice(SHAPES), self.dice.choice(DTYPES)
        self.kind = self.dice.choice(self._kinds())
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        bold, empty = self.dice.random() < 0.5, self.dice.random() < 0.5
        for argument in schema_of(self.target).arguments:
            usual = argument.has_default_value() and not (bold and self.dice.random() < 0.6)
            if argument.name in self.forced:
                value = self.forced[argument.name]
            elif argument.is_out and empty:
                value = room(argument, self.dtype)
            elif usual:
                value = argument.default_value
            else:
                value = self._value(argument.name, argument.type, argument.N)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _kinds(self) -> tuple[str, ...]:
        if within(
            str(self.target), ("sparse", "coalesce", "indices", "values", "to_dense", "csr", "nnz")
        ):
            return ("plain", "sparse", "csr")
        if within(str(self.target), ("quant", "int_repr", "q_")):
            return ("plain", "quantized")
        return ("plain", "plain", "plain", "strided")

    def _value(self, name: str, kind: Any, size: int | None) -> Any:
        what = str(kind.kind())
        match what:
            case "OptionalType":
                return (
                    None
                    if self.dice.random() < 0.4
                    else self._value(name, kind.getElementType(), size)
                )
            case "ListType":
                return self._list(name, kind.getElementType(), size)
            case "TensorType":
                return self._tensor(name)
            case "StorageType":
                return torch.rand(6).untyped_storage()
            case "ScalarTypeType" | "IntType" if "dtype" in name or what == "ScalarTypeType":
                return self.dice.choice((self.dtype, torch.float32, None))
            case "IntType" | "SymIntType" if name in INTEGERS:
                return self.dice.choice(INTEGERS[name])
            case "IntType" | "SymIntType" if within(name, ("dim", "axis")):
                return self.dice.choice((0, 0, 1, 1, -1, 2))
            case _ if what in PLAIN:
                return self.dice.choice(PLAIN[what])
            case _:
                raise NotImplementedError(f"{name}: {kind}")

    def _list(self, name: str, kind: Any, size: int | None) -> list[Any]:
        what = str(kind.kind())
        if what == "BoolType" and name == "output_mask":
            return [True] * (size or 3)
        if what not in ("IntType", "SymIntType"):
            return [self._value(name, kind, None) for _ in range(self.dice.choice((1, 2, 2, 3)))]
        if within(name, ("size", "shape")) and "kernel" not in name and self.dice.random() < 0.7:
            return list(self.shape)
        length = size or self.dice.choice((1, 2, len(self.shape), len(self.shape)))
        if within(name, ("dim", "axes", "axis")):
            return self.dice.sample(range(len(self.shape)), min(length, len(self.shape)))
        low = int(within(name, ("stride", "kernel", "dilation", "size", "chunk", "repeat")))
        return [self.dice.choice((low, low, 1, 1, 2)) for _ in range(length)]

    def _tensor(self, name: str) -> torch.Tensor:
        dice, shape, low = self.dice, self.shape, name.lower()
        channels = shape[min(1, len(shape) - 1)] if shape else 1
        if within(low, PER_CHANNEL) or (low in OFTEN_PER_CHANNEL and dice.random() < 0.5):
            return torch.rand(channels) + 0.5
        if within(low, INDICES) and dice.random() < 0.8:
            return torch.zeros(shape if dice.random() < 0.6 else channels, dtype=torch.int64)
        if "mask" in low and dice.random() < 0.7:
            return torch.rand(shape) > 0.5
        if low in TRANSPOSED and dice.random() < 0.3 and len(shape) >= 2:
            return self._filled((*shape[:-2], shape[-1], shape[-2]))
        return self._filled(dice.choice((*(shape,) * 8, (), dice.choice(SHAPES))))

    def _filled(self, shape: tuple[int, ...]) -> torch.Tensor:
        made = (
            torch.randint(0, 2, shape)
            if self.dtype in (torch.bool, torch.int64)
            else torch.rand(shape) * 0.9 + 0.05
        )
        made = made.to(self.dtype)
        match self.kind:
            case "sparse":
                return made.to_sparse()
            case "csr" if len(shape) == 2:
                return made.to_sparse_csr()
            case "quantized":
                return torch.quantize_per_tensor(torch.rand(shape), 0.1, 0, torch.quint8)
            case "strided" if len(shape) >= 2:
                return made.transpose(0, -1).contiguous().transpose(0, -1)
            case _:
                return made


def samples_of_torch() -> Iterator[tuple[str, list[Any], dict[str, Any]]]:
    """Yield names of operators of aten and arguments for them: those with which torch tests itself on CPUs."""
    if (
        "expecttest" not in sys.modules
    ):  # torch's own tests need it, and nothing that is used here does
        stub: Any = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    for info in op_db:
        if torch.float32 not in info.dtypes:
            continue
        names = {info.aten_name, info.name, info.name.rpartition(".")[2]}
        try:
            samples = list(info.sample_inputs("cpu", torch.float32, requires_grad=False))
        except Exception:  # some need what is not there
            continue
        for sample in samples[:: max(1, len(samples) // 8)]:  # from plain ones to strange ones
            for name in sorted(names):
                yield name, [sample.input, *sample.args], dict(sample.kwargs)
