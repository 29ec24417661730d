"""Arguments of calls of any operator, drawn from its schema, or taken from torch's own samples.

Most drawn arguments fit no operator, and a call that raises costs little; names of arguments say enough (an index is a
number, a running mean has a number for each channel) that some fit.
"""

from __future__ import annotations

import random
import sys
import types
import unittest
from collections.abc import Iterator
from typing import Any

import torch
from attrs import define, field

from purefx.ir.torch_private import schema_of

from .profiles import profile_of

__all__ = ["Arguments", "samples_of_torch", "with_room"]

SHAPES = ((2, 3), (3,), (), (2, 3, 4), (2, 3, 4, 4), (1, 2, 3, 4, 4), (4, 4), (1, 4, 4), (2, 2, 8, 8), (1,))
DTYPES = (torch.float32,) * 5 + (torch.float64, torch.int64, torch.int64, torch.bool, torch.complex64, torch.bfloat16)


WORDS = (
    "none", "mean", "linear", "floor", "trunc", "sum", "constant", "reflect", "ij", "i,i->i", "ij,jk->ik", "full", "tanh", "xy",
    "left", "r",
)  # fmt: skip
NUMBERS = ("index", "indices", "target", "offsets", "lengths", "indexes", "crow", "col_", "batch_sizes")
PER_CHANNEL = ("weight", "bias", "gamma", "beta", "scale", "scales", "zero_point", "zero_points", "noise")


def room(argument: Any, dtype: torch.dtype) -> Any:
    """Return an empty tensor, or two, that a result is put into, which makes it as large as it is."""
    kind = torch.int64 if any(word in argument.name for word in NUMBERS) else dtype
    made = [torch.empty(0, dtype=kind), torch.empty(0, dtype=kind)]
    return made if "[]" in str(argument.type) or "List" in str(argument.type) else made[0]


def with_room(target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return keyword arguments with something for each result that an overload wants to put somewhere."""
    wanted = [each for each in schema_of(target).arguments if each.is_out and each.name not in kwargs]
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
        bold = self.dice.random() < 0.5
        profile = profile_of(str(self.target), self.dice) if self.dice.random() < 0.5 else {}
        empty = self.dice.random() < 0.5
        for argument in schema_of(self.target).arguments:
            if argument.name in self.forced:
                value = self.forced[argument.name]
            elif argument.name in profile:
                value = profile[argument.name]
            elif argument.is_out and empty:
                value = room(argument, self.dtype)
            elif argument.has_default_value() and not (bold and self.dice.random() < 0.6):
                value = argument.default_value
                if argument.kwarg_only:
                    continue
            else:
                value = self._value(argument.name, argument.type, argument.N)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def _kinds(self) -> tuple[str, ...]:
        name = str(self.target)
        if any(word in name for word in ("sparse", "coalesce", "indices", "values", "to_dense", "csr", "nnz")):
            return ("plain", "sparse", "csr")
        if any(word in name for word in ("quant", "int_repr", "q_", "dequant")):
            return ("plain", "quantized")
        return ("plain", "plain", "plain", "strided")

    def _value(self, name: str, kind: Any, size: int | None) -> Any:
        what = str(kind.kind())
        if what == "OptionalType":
            return None if self.dice.random() < 0.4 else self._value(name, kind.getElementType(), size)
        if what == "ListType":
            return self._list(name, kind.getElementType(), size)
        if what == "TensorType":
            return self._tensor(name)
        if what == "DictType":
            keys = [self._value("key", kind.getKeyType(), None) for _ in range(2)]
            return {key: self._value(name, kind.getValueType(), None) for key in keys if not isinstance(key, torch.Tensor)}
        if what in ("VarType", "AnyType"):
            return self.dice.choice((1, 2))
        return self._plain(name, what, str(kind))

    def _list(self, name: str, kind: Any, size: int | None) -> list[Any]:
        what = str(kind.kind())
        if what in ("IntType", "SymIntType"):
            if any(word in name for word in ("size", "shape")) and "kernel" not in name and self.dice.random() < 0.7:
                return list(self.shape)
            length = size or self.dice.choice((1, 2, len(self.shape), len(self.shape)))
            if "dim" in name or "axes" in name or "axis" in name:
                every = list(range(len(self.shape)))
                return self.dice.sample(every, min(length, len(every)))
            low = 1 if any(word in name for word in ("stride", "kernel", "dilation", "size", "chunk", "repeat")) else 0
            return [self.dice.choice((low, low, 1, 1, 2)) for _ in range(length)]
        if what == "BoolType" and name == "output_mask":
            return [True] * (size or 3)
        return [self._value(name, kind, None) for _ in range(self.dice.choice((1, 2, 2, 3)))]

    def _plain(self, name: str, what: str, kind: str) -> Any:
        dice = self.dice
        if "dtype" in name and what in ("IntType", "ScalarTypeType"):
            return dice.choice((self.dtype, torch.float32, None))
        match what:
            case "IntType" | "SymIntType":
                if name in ("device", "device_type"):
                    return torch.device("cpu")
                if name == "layout":
                    return torch.strided
                if name == "memory_format":
                    return dice.choice((torch.contiguous_format, torch.preserve_format, torch.channels_last))
                if "dim" in name or "axis" in name:
                    return dice.choice((0, 0, 1, 1, -1, 2))
                return dice.choice((0, 1, 1, 2, 3, -1))
            case "FloatType":
                return dice.choice((0.0, 0.1, 0.5, 0.5, 0.9, 1.0))
            case "NumberType":
                return dice.choice((0, 1, 2, 0.5, 0.0, 1.0))
            case "BoolType" | "SymBoolType":
                return dice.random() < 0.5
            case "ScalarTypeType":
                return self.dtype
            case "LayoutType":
                return torch.strided
            case "MemoryFormatType":
                return dice.choice((torch.contiguous_format, torch.preserve_format))
            case "DeviceObjType":
                return torch.device("cpu")
            case "StringType":
                return dice.choice(
                    (
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
                        "ij,jk->ik",
                        "full",
                        "tanh",
                        "xy",
                        "left",
                        "r",
                    )
                )
            case "GeneratorType" | "NoneType":
                return None
            case "ComplexType":
                return complex(dice.choice((0.5, 1.0)), dice.choice((0.0, 2.0)))
            case "StorageType":
                return torch.rand(6).untyped_storage()
            case _:
                raise NotImplementedError(f"{name}: {kind}")

    def _tensor(self, name: str) -> torch.Tensor:
        dice, shape = self.dice, self.shape
        channels = shape[1] if len(shape) > 1 else (shape[0] if shape else 1)
        low = name.lower()
        if any(word in low for word in ("running", "mean", "var", "invstd", "save")):
            return torch.rand(channels) + 0.5
        if (
            low in ("weight", "bias", "gamma", "beta", "scale", "scales", "zero_point", "zero_points", "noise")
            and dice.random() < 0.5
        ):
            return torch.rand(channels) + 0.5
        if (
            any(
                word in low
                for word in ("index", "indices", "target", "offsets", "lengths", "indexes", "crow", "col_", "batch_sizes")
            )
            and dice.random() < 0.8
        ):
            return torch.zeros(shape if dice.random() < 0.6 else channels, dtype=torch.int64)
        if "mask" in low and dice.random() < 0.7:
            return torch.rand(shape) > 0.5
        if low in ("other", "mat2", "batch2", "tensor2", "vec2", "b") and dice.random() < 0.3 and len(shape) >= 2:
            return self._filled((*shape[:-2], shape[-1], shape[-2]))
        if dice.random() < 0.08:
            return self._filled(())
        return self._filled(shape if dice.random() < 0.85 else dice.choice(SHAPES))

    def _filled(self, shape: tuple[int, ...]) -> torch.Tensor:
        if self.dtype is torch.bool:
            made = torch.rand(shape) > 0.5
        elif self.dtype is torch.int64:
            made = torch.randint(0, 3, shape)
        else:
            made = (torch.rand(shape) * 0.9 + 0.05).to(self.dtype)
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
    if "expecttest" not in sys.modules:  # torch's own tests need it, and nothing that is used here does
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
