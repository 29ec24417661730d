"""The file: safetensors, with the structure as JSON in a tensor of bytes.

Safetensors records where every tensor begins and ends, and rejects a file that the tensors do not cover exactly, so no more is
allocated than the file holds.  The structure is a tensor, not metadata, because a safetensors header has at most 100 MB, which
some hundred thousand nodes fill.  The content of the JSON is not interpreted here.
"""

from __future__ import annotations

import ctypes
import difflib
import errno
import json
import os
import secrets
import stat
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Any

import torch
from attrs import evolve, frozen

from ..errors import (
    ArgumentError,
    MissingDependency,
    StoreError,
    UnsupportedProgram,
    first_line,
)
from ..names import Names, did_you_mean
from ..persistent import grouped
from ..program import Program
from ..state import Slot, State, is_plain, same_contents
from ..text.lexer import type_name
from ..text.state import TensorFacts
from ..torch_private import FakeTensor
from ..validation import kind_of

VERSION = 5
"""The version of the format."""

STRUCTURE = "purefx.program"
"""The name of the tensor that holds the structure."""

MARK = "purefx"
"""The only entry of the header's metadata: the version.  The order of several would change from file to file."""

STORED_AS_THEY_ARE: frozenset[Any] = frozenset([
    torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
])  # fmt: skip
"""Data types of safetensors; other tensors are stored as bytes."""


def _library() -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise MissingDependency(
            "saved programs are safetensors files: pip install 'purefx[store]'"
        ) from error
    return safetensors


def write_file(
    path: str | os.PathLike[str], structure: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write a file completely, or not at all.

    Args:
        path: of the file; an existing file is replaced when the new one is complete.
        structure: plain data for JSON.
        tensors: contiguous tensors in the memory of the host, by name.

    Raises:
        MissingDependency: safetensors is not installed.
        OSError: it cannot be written.
    """
    library = _library()
    text = json.dumps(structure, separators=(",", ":")).encode("ascii")
    whole = {STRUCTURE: torch.frombuffer(bytearray(text), dtype=torch.uint8), **tensors}
    specs: dict[str, Any] = {}
    for name, tensor in whole.items():
        place = {"data_ptr": tensor.data_ptr(), "data_len": tensor.nbytes}
        specs[name] = library.TensorSpec(
            dtype=str(tensor.dtype).removeprefix("torch."), shape=list(tensor.shape), **place
        )
    with _replacing(path) as temporary:
        try:
            library.serialize_file(specs, str(temporary), metadata={MARK: str(VERSION)})
        except library.SafetensorError as error:
            raise OSError(f"{os.fspath(path)!a} cannot be written: {_line(error)}") from error


@contextmanager
def _replacing(path: str | os.PathLike[str]) -> Generator[Path, None, None]:
    # A file beside the old one, so that both are on one disk, with the permissions of a file from `open`.
    final = Path(os.path.realpath(path))
    if not final.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(final.parent)!a} does not exist")
    if final.is_dir():
        raise IsADirectoryError(f"{str(final)!a} is a folder; pass a file name")
    if final.exists() and not final.is_file():
        raise FileExistsError(
            f"{str(final)!a} is not a regular file, so it is not replaced; pass another path"
        )
    temporary = final.with_name(f".{final.name[:100]}.{secrets.token_hex(8)}")
    temporary.touch(exist_ok=False)
    mode = stat.S_IMODE((final if final.exists() else temporary).stat().st_mode)
    try:
        yield temporary
        temporary.chmod(mode)  # safetensors recreates it, readable by its owner only
        temporary.replace(final)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # JSON readers differ in which of two entries with one key counts.
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


BOUND = int | float | None

STRUCTURE_SHAPE: Any = {
    "made with": dict, "program": str, "operators": [str], "weights": bool,
    "storages": [(str, str, bool, str)], "begins": {str: int},
    "meta": {"keys": [[str]], "values": [str], "symbols": {str: (BOUND, BOUND, BOUND)}, "graphs": {str: ([[int]], [[int]])}},
    "origins": {"origins": [list], "steps": [(str, [(int, [(str, str, str)])])]},
}  # fmt: skip
"""The shape of the structure of a file."""


def misshapen(value: Any, shape: Any, at: str = "") -> str | None:
    """Return the place where JSON does not match a shape; None if it matches.

    Args:
        value: a value from JSON.
        shape: types, ``[shape]`` for a list, a tuple for a list of that length, a dict for an object with these keys, or
            ``{str: shape}`` for one with any keys.
        at: the place of the value.

    >>> misshapen([1, "a"], [int]), misshapen({"a": 1}, {"a": int}), misshapen({}, {"a": int})
    ('[1]', None, '')
    """
    if isinstance(shape, type | UnionType):
        return None if isinstance(value, shape) else at
    if type(value) is not (dict if type(shape) is dict else list):
        return at
    shapes: Any = [shape[0]] * len(value) if type(shape) is list else shape
    keys: Iterable[Any] = range(len(value))
    if type(shape) is dict:
        shapes = dict.fromkeys(value, shape[str]) if str in shape else shape
        keys = shapes
    if len(shapes) != len(value) or any(type(key) is str and key not in value for key in keys):
        return at
    found = (
        misshapen(
            value[key], shapes[key], f"{at}[{key if type(key) is int else ascii(str(key)[:40])}]"
        )
        for key in keys
    )
    return next((place for place in found if place is not None), None)


class File:
    """An open file: its structure, and its tensors on demand."""

    def __init__(self, name: str, handle: Any) -> None:
        self._name = name
        self._handle = handle
        self.keys: frozenset[str] = frozenset(handle.keys())
        """The names of the tensors."""

    def structure(self) -> dict[str, Any]:
        """Return the structure.

        Raises:
            StoreError: the file has none, or has another version.
        """
        version = (self._handle.metadata() or {}).get(MARK)
        if version is None or STRUCTURE not in self.keys:
            raise StoreError(f"{self._name} is a safetensors file without a program in it")
        if version != str(VERSION):
            raise StoreError(
                f"{self._name} has version {version[:40]!a} of the format, but this purefx reads {VERSION}"
            )
        raw = self.tensor(STRUCTURE)
        if raw.dtype is not torch.uint8 or raw.dim() != 1:
            raise StoreError(f"{self._name}: its structure is not text")
        try:
            found = json.loads(
                ctypes.string_at(raw.data_ptr(), raw.numel()).decode("ascii"),
                object_pairs_hook=_object,
            )
        except (ValueError, RecursionError) as error:
            raise StoreError(
                f"{self._name}: its structure is not JSON ({type(error).__name__})"
            ) from error
        if (wrong := misshapen(found, STRUCTURE_SHAPE)) is not None:
            raise StoreError(f"{self._name}: its structure{wrong} is malformed")
        return found

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor, in separate memory.

        Raises:
            StoreError: the file has no tensor of this name, or torch does not have its type.
        """
        if name not in self.keys:
            raise StoreError(f"{self._name} has no tensor {name[:80]!a}")
        try:
            return self._handle.get_tensor(name)
        except (
            _library().SafetensorError,
            RuntimeError,
            TypeError,
            ValueError,
            AttributeError,
        ) as error:
            raise StoreError(
                f"{self._name}: the tensor {name[:80]!a} cannot be read: {_line(error)}"
            ) from error


@contextmanager
def opened(path: str | os.PathLike[str]) -> Generator[File, None, None]:
    """Open a file.

    Args:
        path: of the file.

    Raises:
        StoreError: it is not a complete safetensors file.
        MissingDependency: safetensors is not installed.
        OSError: the file does not exist, or cannot be read.
    """
    library = _library()
    name = ascii(os.fspath(path))
    if is_zip(path):
        raise StoreError(
            f"{name} is a zip file, like those of torch.export.save and torch.save; if you trust its author (loading runs "
            "code), load it with torch, import it with purefx.import_ep, and save the program"
        )
    try:
        handle: Any = library.safe_open(os.fspath(path), framework="pt", backend="pread")
    except library.SafetensorError as error:
        raise StoreError(
            f"{name} is not a saved program, or is incomplete: {_line(error)}"
        ) from error
    with handle:
        yield File(name, handle)


def is_zip(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a zip file, as torch writes them.

    Args:
        path: of the file.

    Raises:
        StoreError: it is a pipe or a device, which are not read, because that may not end.
        OSError: the file does not exist, or cannot be read.
    """
    file = Path(os.fsdecode(path))
    if file.exists() and not file.is_file() and not file.is_dir():
        raise StoreError(f"{os.fspath(path)!a} is not a file")
    try:
        with file.open("rb") as stream:
            return stream.read(4) == b"PK\x03\x04"
    except FileNotFoundError as error:
        names = [entry.name for entry in file.parent.iterdir()] if file.parent.is_dir() else []
        # An equal extension is not enough.
        near = did_you_mean(file.name, difflib.get_close_matches(file.name, names, cutoff=0.8))
        raise FileNotFoundError(errno.ENOENT, f"no such file{near}", str(file)) from error


def _line(error: Exception) -> str:
    return ascii(first_line(error)[:200])[1:-1]


@frozen
class StoredMemory:
    """The place of a storage's contents in a file."""

    slot: str
    """The first slot with this memory, or the slot whose tensor is stored."""
    key: str
    """The name of the tensor in the file."""
    is_whole: bool
    """Whether it is the tensor of the slot, not the bytes of the storage."""
    device: str
    """The device that it was on."""


def store_memory(
    program: Program, *, weights: bool
) -> tuple[list[StoredMemory], dict[str, torch.Tensor]]:
    """Return the place of each storage, and the tensors to store.

    Args:
        program: the program.
        weights: False leaves out memory that only parameters and buffers of the ``state_dict`` use.

    Raises:
        UnsupportedProgram: a slot holds a value that cannot be stored.
    """
    state = program.state
    shown = grouped(
        [(slot.storage, name) for name, slot in state.pairs if isinstance(slot.value, torch.Tensor)]
    )
    names = Names([STRUCTURE])
    places: list[StoredMemory] = []
    tensors: dict[str, torch.Tensor] = {}
    for number, slots in enumerate(shown.values()):
        if not weights and all(state[name].persistent for name in slots):
            continue
        for name in slots:
            _check(name, state[name])
        if state[slots[0]].value.is_meta:
            continue  # it has no contents
        whole = next((name for name in slots if covers(state[name].value)), None)
        key = names.fresh(
            whole if whole is not None and _is_key(whole) else f"purefx.storage.{number}"
        )
        tensor = state[slots[0] if whole is None else whole].value.detach()
        places.append(
            StoredMemory(
                slots[0] if whole is None else whole, key, whole is not None, str(tensor.device)
            )
        )
        if whole is None:
            tensor = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
                tensor.untyped_storage()
            )
        tensors[key] = tensor.cpu().contiguous()
    return places, tensors


def _check(name: str, slot: Slot) -> None:
    value, owner = slot.value, f"the {slot.kind.value} {name!a}"
    if isinstance(value, FakeTensor):
        raise UnsupportedProgram(
            f"{owner} is a fake tensor: save the program with weights=False, or put the weights into it"
        )
    if not is_plain(value) or value.is_conj() or value.is_neg():
        raise UnsupportedProgram(
            f"{owner} is a {type_name(type(value))} of {value.dtype}, {value.layout}, but a file holds plain strided tensors, "
            "not nested, quantized or lazily conjugated or negated ones; convert it, or store its parts as separate slots"
        )


def covers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor covers its storage, each byte once, and has a type of safetensors.

    >>> covers(torch.ones(2, 3).t()), covers(torch.ones(3)[1:]), covers(torch.ones(1).expand(3))
    (True, False, False)
    """
    if (
        tensor.dtype not in STORED_AS_THEY_ARE
        or tensor.storage_offset()
        or tensor.nbytes != tensor.untyped_storage().nbytes()
    ):
        return False
    step = 1
    for stride, size in sorted(
        (stride, size)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
        if size != 1
    ):
        if stride != step:
            return tensor.numel() == 0
        step *= size
    return True


def _is_key(name: str) -> bool:
    # Names of tensors are UTF-8, and one is reserved.
    return name != "__metadata__" and not any("\ud800" <= char <= "\udfff" for char in name)


def read_storage(
    file: File, place: StoredMemory, facts: Mapping[str, TensorFacts], device: torch.device
) -> torch.UntypedStorage:
    """Read a storage from a file.

    Args:
        file: the file.
        place: of its contents.
        facts: the facts of the tensors of the program, by slot.
        device: of the result.

    Raises:
        StoreError: the tensor in the file does not fit the slot.
    """
    tensor, wanted = file.tensor(place.key), facts[place.slot]
    if not place.is_whole:
        if tensor.dtype is not torch.uint8 or tensor.dim() != 1:
            raise StoreError(f"the tensor {place.key[:80]!a} in the file is not plain bytes")
    elif not wanted.fits(tensor):
        raise StoreError(
            f"the slot {place.slot[:80]!a} is {wanted.dtype} {wanted.shape}, and in the file {_described(tensor)}"
        )
    elif wanted.stride is not None:
        memory = torch.empty(tensor.nbytes, dtype=torch.uint8, device=device).untyped_storage()
        _view(wanted, memory, place.slot).detach().copy_(tensor)
        return memory
    return tensor.to(device).untyped_storage()


def _described(value: Any) -> str:
    return (
        f"{value.dtype} {tuple(value.shape)}"
        if isinstance(value, torch.Tensor)
        else f"a {type(value).__name__}"
    )


def _view(facts: TensorFacts, storage: torch.UntypedStorage, name: str) -> torch.Tensor:
    if facts.bytes_needed() > storage.nbytes():
        raise StoreError(f"the slot {name[:80]!a} reaches beyond its memory in the file")
    try:
        return facts.on(storage)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise StoreError(
            f"the slot {name[:80]!a} is not a possible tensor: {first_line(error)}"
        ) from error


def check_passed(
    passed: Mapping[str, Any],
    state: State,
    facts: Mapping[str, TensorFacts],
    stored: Collection[int],
) -> None:
    """Check the values that a reader passes.

    Args:
        passed: values by name of slot.
        state: the state of the file.
        facts: the facts of the tensors, by slot.
        stored: the storages that the file has.

    Raises:
        StoreError: a name is not a slot, a tensor does not fit, or a tensor is in neither.
    """
    if not isinstance(passed, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"`state` must map names of slots to tensors, like model.state_dict(), not be {kind_of(passed)}"
        )
    if unknown := [name for name in passed if name not in state]:
        raise StoreError(f"`state` has names that are not slots of the program: {_names(unknown)}")
    for name, value in passed.items():
        if name in facts and not facts[name].fits(value):
            wanted = f"{facts[name].dtype} {facts[name].shape}"
            raise StoreError(
                f"the slot {name[:80]!a} is {wanted}, and `state` has {_described(value)}"
            )
    without = [name for name in state if name in facts and state[name].storage not in stored]
    if missing := [
        name
        for name in without
        if not any(tied in passed for tied in state.by_cell[state[name].cell])
    ]:
        raise StoreError(f"neither the file nor `state` has {_names(missing)}")


def _names(names: Sequence[str]) -> str:
    return ", ".join([ascii(name[:80]) for name in names[:8]]) + (
        f" and {len(names) - 8} more" if len(names) > 8 else ""
    )


def with_memory(
    state: State,
    facts: Mapping[str, TensorFacts],
    stored: Mapping[int, torch.UntypedStorage],
    passed: Mapping[str, Any],
) -> State:
    """Return a state with the tensors of a file, or passed ones in their place; others stay on the meta device.

    Args:
        state: of the program in the file.
        facts: the facts of the tensors, by slot.
        stored: the storages of the file, by number.
        passed: values by name of slot.

    Raises:
        StoreError: the file or the passed values contradict the facts.
    """
    slots = {name: evolve(slot, value=passed.get(name, slot.value)) for name, slot in state.pairs}
    for storage, names in grouped([(state[name].storage, name) for name in facts]).items():
        values: dict[int, torch.Tensor] = {}
        for name in names:
            if name in passed and not _same(
                values.setdefault(state[name].cell, passed[name]), passed[name]
            ):
                raise StoreError(
                    f"{_names(state.by_cell[state[name].cell])} are one tensor, but `state` has several"
                )
        if values or storage in stored:
            cells = {state[name].cell: name for name in reversed(names)}
            made = _tensors(cells, values, stored.get(storage), facts)
            slots.update(
                {name: evolve(state[name], value=made[state[name].cell]) for name in names}
            )
    return State.of(slots)


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    # Strides may differ.
    return left is right or (left.device == right.device and same_contents(left, right))


def _tensors(
    cells: Mapping[int, str],
    values: Mapping[int, torch.Tensor],
    storage: torch.UntypedStorage | None,
    facts: Mapping[str, TensorFacts],
) -> dict[int, torch.Tensor]:
    """Return the tensors of one storage by cell: passed ones that need no copy, or views with the passed values in them."""
    if len(cells) == len(values) == 1:
        [(cell, name)] = cells.items()
        fact, value = facts[name], values[cell]
        if (fact.strides(), fact.offset) == (value.stride(), value.storage_offset()):
            is_plain = type(value) is (torch.nn.Parameter if fact.is_parameter else torch.Tensor)
            is_same = is_plain and value.requires_grad is fact.requires_grad
            return {cell: value if is_same else fact.on(value.untyped_storage())}
    if storage is None:
        size, [value, *_] = (
            max([facts[name].bytes_needed() for name in cells.values()]),
            values.values(),
        )
        storage = torch.zeros(size, dtype=torch.uint8, device=value.device).untyped_storage()
    made = {cell: _view(facts[name], storage, name) for cell, name in cells.items()}
    with torch.no_grad():
        for cell, value in values.items():
            made[cell].copy_(value)
        if not all(_same(made[cell], value.to(storage.device)) for cell, value in values.items()):
            raise StoreError(
                f"{_names([*cells.values()])} share memory, but their values in `state` contradict each other"
            )
    return made
