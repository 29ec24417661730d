"""The file: safetensors, in which one tensor of bytes is the structure as JSON.

Safetensors states where every tensor begins and ends, and rejects a file that is not covered exactly, so nothing is allocated
that the file does not hold.  The structure is a tensor and no metadata because a header of safetensors has at most 100 MB,
which a program of some hundred thousand nodes fills.  The content of the JSON is not interpreted here.
"""

from __future__ import annotations

import ctypes
import difflib
import errno
import json
import os
import secrets
import stat
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Any

import torch
from attrs import evolve, frozen

from ..errors import ArgumentError, MissingDependency, StoreError, UnsupportedProgram
from ..names import Names, did_you_mean
from ..persistent import pmap
from ..program import Program
from ..state import Slot, State, same_contents
from ..taking import kind_of
from ..text.arguments import CONSTANTS
from ..text.state import TensorFacts
from ..torch_private import FakeTensor

VERSION = 2
"""The version of the format that is written and read."""

STRUCTURE = "purefx.program"
"""The name of the tensor that holds the structure."""

MARK = "purefx"
"""The one entry of the header's metadata: the version.  With two, their order would change from file to file."""

KINDS: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "U16": "uint16", "I16": "int16", "U32": "uint32", "I32": "int32",
    "U64": "uint64", "I64": "int64", "F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64", "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
}  # fmt: skip

STORED_AS_THEY_ARE: frozenset[Any] = frozenset([CONSTANTS[f"torch.{name}"] for name in KINDS.values()])
"""Data types that safetensors has; tensors of others are stored as bytes."""


def _library() -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise MissingDependency("saved programs are safetensors files: pip install 'purefx[store]'") from error
    return safetensors


def write_file(path: str | os.PathLike[str], structure: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a file: all of it, or nothing.

    Args:
        path: of the file; what is there is replaced when the new one is complete.
        structure: what JSON can say.
        tensors: contiguous tensors in the memory of the host, by name.

    Raises:
        MissingDependency: safetensors is not installed.
        OSError: it cannot be written.
    """
    library = _library()
    text = json.dumps(structure, separators=(",", ":")).encode("ascii")
    whole = {STRUCTURE: torch.frombuffer(bytearray(text), dtype=torch.uint8), **tensors}
    specs = {
        name: library.TensorSpec(
            dtype=str(tensor.dtype).removeprefix("torch."),
            shape=list(tensor.shape),
            data_ptr=tensor.data_ptr(),
            data_len=tensor.nbytes,
        )
        for name, tensor in whole.items()
    }
    with _replacing(path) as temporary:
        try:
            library.serialize_file(specs, str(temporary), metadata={MARK: str(VERSION)})
        except library.SafetensorError as error:
            raise OSError(f"{os.fspath(path)!a} cannot be written: {_line(error)}") from error


@contextmanager
def _replacing(path: str | os.PathLike[str]) -> Generator[Path, None, None]:
    # A file beside the old one, so that both are on one disk, made as `open` makes one: with the permissions that the user wants.
    final = Path(os.path.realpath(path))
    if not final.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(final.parent)!a} to save in")
    if final.is_dir():
        raise IsADirectoryError(f"{str(final)!a} is a folder; give the name of a file")
    if final.exists() and not final.is_file():
        raise FileExistsError(f"{str(final)!a} is not a plain file, and is not replaced")
    temporary = final.with_name(f".{final.name[:100]}.{secrets.token_hex(8)}")
    temporary.touch(exist_ok=False)
    mode = stat.S_IMODE((final if final.exists() else temporary).stat().st_mode)
    try:
        yield temporary
        temporary.chmod(mode)  # safetensors makes it anew, for its owner alone
        temporary.replace(final)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers of JSON do not agree on which of two entries with one key counts.
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key comes twice")
    return found


BOUND = int | float | None

STRUCTURE_SHAPE: Any = {
    "made with": dict, "program": str, "operators": [str], "storages": [(int, str, str | None, str)], "weights": bool,
    "meta": {"keys": [[str]], "values": list, "symbols": {str: (BOUND, BOUND, BOUND)}, "graphs": {str: ([[int]], [[int]])}},
    "origins": {"texts": [str], "origins": [list], "steps": [(int, [[int]])]},
}  # fmt: skip
"""What the structure of a file is made of."""


def misshapen(value: Any, shape: Any, at: str = "") -> str | None:
    """Return where JSON does not have a shape; None if it has it everywhere.

    Args:
        value: what JSON had.
        shape: types, ``[shape]`` for a list, a tuple for a list of so many items, a dict for an object with these keys, or
            ``{str: shape}`` for one with any.
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
    found = (misshapen(value[key], shapes[key], f"{at}[{key if type(key) is int else ascii(str(key)[:40])}]") for key in keys)
    return next((place for place in found if place is not None), None)


class File:
    """An open file: its structure, and its tensors when they are asked for."""

    def __init__(self, name: str, handle: Any) -> None:
        self._name = name
        self._handle = handle
        self.keys: frozenset[str] = frozenset(handle.keys())
        """The names of the tensors."""

    def structure(self) -> dict[str, Any]:
        """Return the structure.

        Raises:
            StoreError: there is none, or it is of a later version.
        """
        said = (self._handle.metadata() or {}).get(MARK)
        if said is None or STRUCTURE not in self.keys:
            raise StoreError(f"{self._name} is a safetensors file without a program in it")
        if not (said.isascii() and said.isdigit() and 0 < len(said) < 10) or int(said) < 1:
            raise StoreError(f"{self._name} does not say which version of the format it has, but {said[:40]!a}")
        if int(said) != VERSION:
            raise StoreError(f"{self._name} has version {int(said)} of the format, and this purefx reads {VERSION}")
        raw = self.tensor(STRUCTURE)
        if raw.dtype is not torch.uint8 or raw.dim() != 1:
            raise StoreError(f"{self._name}: its structure is not text")
        try:
            found = json.loads(ctypes.string_at(raw.data_ptr(), raw.numel()).decode("ascii"), object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self._name}: its structure is not JSON ({type(error).__name__})") from error
        if isinstance(found, dict) and found.get("origins", "") is None:  # earlier files say so that they have none
            found["origins"] = {"texts": [], "origins": [], "steps": []}
        if (wrong := misshapen(found, STRUCTURE_SHAPE)) is not None:
            raise StoreError(f"{self._name}: its structure{wrong} is malformed")
        return found

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor, with memory of its own.

        Raises:
            StoreError: the file has none of this name, or torch has no such type.
        """
        if name not in self.keys:
            raise StoreError(f"{self._name} has no tensor {name[:80]!a}")
        try:
            return self._handle.get_tensor(name)
        except (_library().SafetensorError, RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"{self._name}: the tensor {name[:80]!a} cannot be read: {_line(error)}") from error


@contextmanager
def opened(path: str | os.PathLike[str]) -> Generator[File, None, None]:
    """Open a file.

    Args:
        path: of the file.

    Raises:
        StoreError: it is not a safetensors file, or not all of one.
        MissingDependency: safetensors is not installed.
        OSError: there is no such file, or it cannot be read.
    """
    library = _library()
    name = ascii(os.fspath(path))
    try:
        _look_at(Path(os.fsdecode(path)), name)
    except FileNotFoundError as error:
        raise _missing(Path(os.fsdecode(path))) from error
    try:
        handle: Any = library.safe_open(os.fspath(path), framework="pt", backend="pread")
    except library.SafetensorError as error:
        raise StoreError(f"{name} is not a saved program, or not all of one: {_line(error)}") from error
    with handle:
        yield File(name, handle)


def near_file(path: Path) -> str:
    """Return the end of a sentence that says that a file is not there: which ones of its folder have such a name, or nothing.

    Args:
        path: where it would be.

    >>> near_file(Path("no/folder/model.purefx"))
    ''
    """
    try:
        names = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        return ""
    return did_you_mean(path.name, difflib.get_close_matches(path.name, names, cutoff=0.8))  # an ending alone is not near


def _missing(file: Path) -> FileNotFoundError:
    folder = file.parent
    said = f"there is no file {file.name!a} in {str(folder.absolute())!a}{near_file(file)}"
    error = FileNotFoundError(said if folder.is_dir() else f"there is no folder {str(folder)!a} to load {file.name!a} from")
    error.errno = errno.ENOENT  # as `open` says it
    return error


def _look_at(path: Path, name: str) -> None:
    # Common mistakes get a specific message; a pipe or a device would be read forever.
    if path.exists() and not path.is_file() and not path.is_dir():
        raise StoreError(f"{name} is not a file")
    with path.open("rb") as file:
        first = file.read(4)
    if first == b"PK\x03\x04":
        raise StoreError(
            f"{name} is a zip file, as torch.export.save and torch.save write them: load it with torch if you trust who "
            "made it (loading runs code), import it with purefx.import_ep, and save the program"
        )


def _line(error: Exception) -> str:
    return ascii((str(error).splitlines() or [type(error).__name__])[0][:200])[1:-1]


PLAIN_TENSORS: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)


@frozen
class Place:
    """Where the contents of a storage are."""

    storage: int
    """The number that slots have."""
    key: str
    """The name of the tensor in the file."""
    slot: str | None
    """The slot whose tensor it is; None if it is the bytes of the storage."""
    device: str
    """Where it was."""


def place_storages(program: Program, *, weights: bool) -> tuple[list[Place], dict[str, torch.Tensor]]:
    """Return where each storage goes, and the tensors to store.

    Args:
        program: whose state it is.
        weights: False leaves out memory that only parameters and buffers of the ``state_dict`` show.

    Raises:
        UnsupportedProgram: a slot holds something that has no place in a file.
    """
    state = program.state
    shown: dict[int, list[str]] = {}
    for name, slot in state.pairs:
        if isinstance(slot.value, torch.Tensor):
            shown.setdefault(slot.storage, []).append(name)
    names = Names([STRUCTURE])
    places: list[Place] = []
    tensors: dict[str, torch.Tensor] = {}
    for storage, slots in shown.items():
        if not weights and all(state[name].persistent for name in slots):
            continue
        for name in slots:
            _check(name, state[name])
        tensor = state[slots[0]].value
        if tensor.is_meta:
            continue  # it has no contents
        whole = next((name for name in slots if covers(state[name].value)), None)
        key = names.fresh(whole if whole is not None and _is_key(whole) else f"purefx.storage.{storage}")
        places.append(Place(storage, key, whole, str(tensor.device)))
        tensors[key] = _on_host(tensor if whole is None else state[whole].value, as_bytes=whole is None)
    return places, tensors


def _check(name: str, slot: Slot) -> None:
    value = slot.value
    faults = (
        (isinstance(value, FakeTensor), "is a fake tensor: save the program with weights=False, or put the weights into it"),
        (
            type(value) not in PLAIN_TENSORS,
            f"is a {type(value).__module__}.{type(value).__qualname__}, not a plain tensor: store what it holds",
        ),
        (value.is_quantized, "is quantised: store its int_repr(), and dequantise in the graph"),
        (value.layout is not torch.strided, f"is {value.layout}: store its to_dense(), or its parts as slots of their own"),
        (value.is_conj() or value.is_neg(), "is a lazy conjugate or negative: store value.resolve_conj().resolve_neg()"),
    )
    for is_wrong, fault in faults:
        if is_wrong:
            raise UnsupportedProgram(f"the {slot.kind.value} {name!a} {fault}")


def covers(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is all of its storage, each byte once, and of a type that the file has.

    >>> covers(torch.ones(2, 3).t()), covers(torch.ones(3)[1:]), covers(torch.ones(1).expand(3))
    (True, False, False)
    """
    if tensor.dtype not in STORED_AS_THEY_ARE or tensor.storage_offset() or tensor.nbytes != tensor.untyped_storage().nbytes():
        return False
    step = 1
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1):
        if stride != step:
            return tensor.numel() == 0
        step *= size
    return True


def _is_key(name: str) -> bool:
    # Names of tensors are UTF-8, and one means something.
    return name != "__metadata__" and not any("\ud800" <= char <= "\udfff" for char in name)


def _on_host(tensor: torch.Tensor, *, as_bytes: bool) -> torch.Tensor:
    plain = tensor.detach()
    if as_bytes:
        plain = torch.empty(0, dtype=torch.uint8, device=plain.device).set_(plain.untyped_storage())
    return plain.cpu().contiguous()


def read_storage(file: File, place: Place, facts: Mapping[str, TensorFacts], device: torch.device) -> torch.UntypedStorage:
    """Return a storage with the contents that a file has for it.

    Args:
        file: the file.
        place: where they are.
        facts: what the tensors of the program's slots are, by name.
        device: where it shall be.

    Raises:
        StoreError: what is there does not fit the slot.
    """
    tensor = file.tensor(place.key)
    if place.slot is None:
        if tensor.dtype is not torch.uint8 or tensor.dim() != 1:
            raise StoreError(f"the tensor {place.key[:80]!a} in the file is not plain bytes")
        return tensor.to(device).untyped_storage()
    wanted = facts[place.slot]
    if not wanted.fits(tensor):
        found = f"{tensor.dtype} {tuple(tensor.shape)}"
        raise StoreError(f"the slot {place.slot[:80]!a} is {wanted.dtype} {wanted.shape}, and in the file {found}")
    if wanted.stride is not None:
        if wanted.bytes_needed() > tensor.nbytes or wanted.offset:
            raise StoreError(f"the slot {place.slot[:80]!a} reaches beyond what the file has for it")
        try:
            tensor = torch.empty_strided(wanted.shape, wanted.stride, dtype=tensor.dtype).copy_(tensor)
        except RuntimeError as error:
            raise StoreError(f"the slot {place.slot[:80]!a} is not all of its memory, each number once") from error
    return tensor.to(device).untyped_storage()


def as_tensor(facts: TensorFacts, storage: torch.UntypedStorage, name: str) -> torch.Tensor:
    """Return a view of a storage, a parameter if the facts say so.

    Args:
        facts: which view.
        storage: the memory.
        name: of the slot, for messages.

    Raises:
        StoreError: it reaches beyond the memory.
    """
    if facts.layout is not torch.strided or facts.bytes_needed() > storage.nbytes():
        raise StoreError(f"the slot {name[:80]!a} reaches beyond what the file has for it")
    try:
        return facts.on(storage)
    except (RuntimeError, TypeError, OverflowError) as error:
        raise StoreError(f"the slot {name[:80]!a}: there is no such tensor: {str(error).splitlines()[0]}") from error


def put_in(given: Mapping[str, Any], state: State, facts: Mapping[str, TensorFacts]) -> State:
    """Return a state with what is given in it.

    Args:
        given: values by name of slot.
        state: what the file has; what it lacks is on the meta device.
        facts: what the tensors of the slots are, by name.

    Raises:
        StoreError: a name is not a slot, a tensor does not fit, or something is in neither place.
    """
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(f"`state` maps names of slots to tensors, as model.state_dict() does, and is {kind_of(given)}")
    unknown = [name for name in given if name not in state]
    if unknown:
        raise StoreError(f"`state` has what is not a slot of the program: {_names(unknown)}")
    _check_fit(given, facts)
    lacking = [name for name, slot in state.pairs if _is_lacking(slot) and not _gives(given, state, name)]
    if lacking:
        raise StoreError(f"neither the file nor `state` has: {_names(lacking)}")
    slots = dict(state.pairs)
    groups: dict[int, list[str]] = {}
    for name, slot in state.pairs:
        groups.setdefault(slot.storage, []).append(name)
    for names in groups.values():
        if any(name in given for name in names):
            slots.update(_group(names, given, state, facts))
    return State(state.order, pmap(slots))


def _names(names: list[str]) -> str:
    return ", ".join([ascii(name[:80]) for name in names[:8]]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")


def _is_lacking(slot: Slot) -> bool:
    return isinstance(slot.value, torch.Tensor) and slot.value.is_meta


def _gives(given: Mapping[str, Any], state: State, name: str) -> bool:
    return any(tied in given for tied in state.by_cell[state[name].cell])


def _check_fit(given: Mapping[str, Any], facts: Mapping[str, TensorFacts]) -> None:
    for name, value in given.items():
        wanted = facts.get(name)
        if wanted is not None and not wanted.fits(value):
            kind = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
            raise StoreError(f"the slot {name[:80]!a} is {wanted.dtype} {wanted.shape}, and `state` gives {kind}")


def _group(names: list[str], given: Mapping[str, Any], state: State, facts: Mapping[str, TensorFacts]) -> dict[str, Slot]:
    """Return the slots of one storage with what is given for them."""
    if not all(name in facts for name in names):
        return {name: evolve(state[name], value=given.get(name, state[name].value)) for name in names}
    cells: dict[int, Any] = {}
    for name in names:
        cell = state[name].cell
        if name in given and cell in cells and not _alike(cells[cell], given[name]):
            raise StoreError(f"{_names(list(state.by_cell[cell]))} are one tensor, and `state` gives several")
        if name in given:
            cells.setdefault(cell, given[name])
    fact, value = facts[names[0]], next(iter(cells.values()))
    lies_so = (fact.strides(), fact.offset) == (value.stride(), value.storage_offset())
    if lies_so and len({state[name].cell for name in names}) == 1:
        made = {cell: _dressed(value, fact) for cell in cells}
    else:
        made = _filled(names, cells, state, facts)
    return {name: evolve(state[name], value=made[state[name].cell]) for name in names}


def _alike(left: torch.Tensor, right: torch.Tensor) -> bool:
    # Strides say where numbers lie, not which they are.
    return left is right or (left.device == right.device and same_contents(left, right))


def _dressed(value: torch.Tensor, facts: TensorFacts) -> torch.Tensor:
    if facts.is_parameter:
        fits = type(value) is torch.nn.Parameter and value.requires_grad is facts.requires_grad
        return value if fits else torch.nn.Parameter(value.detach(), requires_grad=facts.requires_grad)
    fits = type(value) is torch.Tensor and value.requires_grad is facts.requires_grad
    return value if fits else value.detach().requires_grad_(facts.requires_grad)


def _filled(
    names: list[str], cells: Mapping[int, torch.Tensor], state: State, facts: Mapping[str, TensorFacts]
) -> dict[int, torch.Tensor]:
    """Return tensors in new memory, which begins as that of the file, with what is given written into it."""
    known = [state[name].value for name in names]
    old = next((value for value in known if not value.is_meta), None)
    if old is None:
        size = max(facts[name].bytes_needed() for name in names)
        device = next(iter(cells.values())).device
        storage = torch.zeros(size, dtype=torch.uint8, device=device).untyped_storage()
    else:
        storage = old.untyped_storage().clone()
    made = {state[name].cell: as_tensor(facts[name], storage, name) for name in names}
    with torch.no_grad():
        for cell, value in cells.items():
            made[cell].copy_(value)
        for cell, value in cells.items():
            if not _alike(made[cell], value.to(storage.device)):
                raise StoreError(f"{_names(names)} share memory, and what `state` gives for them does not fit together")
    return made
