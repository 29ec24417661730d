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
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from ..errors import MissingDependency, StoreError
from ..names import did_you_mean
from ..text.arguments import CONSTANTS

__all__ = ["STORED_AS_THEY_ARE", "STRUCTURE", "VERSION", "File", "near_file", "opened", "write_file"]

VERSION = 2
"""The version of the format that is written; all versions up to it are read."""

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
        if int(said) > VERSION:
            known = f"this purefx reads up to {VERSION}: use a later purefx"
            raise StoreError(f"{self._name} has version {int(said)} of the format, and {known}")
        raw = self.tensor(STRUCTURE)
        if raw.dtype is not torch.uint8 or raw.dim() != 1:
            raise StoreError(f"{self._name}: its structure is not text")
        try:
            found = json.loads(ctypes.string_at(raw.data_ptr(), raw.numel()).decode("ascii"), object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            raise StoreError(f"{self._name}: its structure is not JSON ({type(error).__name__})") from error
        if type(found) is not dict:
            raise StoreError(f"{self._name}: its structure is not a JSON object")
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
        _look_at(path, name)
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


def _look_at(path: str | os.PathLike[str], name: str) -> None:
    # Common mistakes get a specific message; a pipe or a device would be read forever.
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise StoreError(f"{name} is not a file")
        first = file.read(4)
    if first == b"PK\x03\x04":
        raise StoreError(
            f"{name} is a zip file, as torch.export.save and torch.save write them: load it with torch if you trust who "
            "made it (loading runs code), import it with purefx.import_ep, and save the program"
        )


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _line(error: Exception) -> str:
    return ascii((str(error).splitlines() or [type(error).__name__])[0][:200])[1:-1]
