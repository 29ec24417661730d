"""Write a program, its steps and its problems as one HTML file without external resources.

``gather`` collects plain data from the program; the scripts of the page draw it.
Only a file that ``report`` wrote is replaced, when the new one is complete.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from purefx.ir.program import Program
from purefx.ir.validation import a_path, a_program

__all__ = ["report"]

MARK = b"<!DOCTYPE html>\n<!-- made by purefx -->"
"""How a page begins."""


def report(
    program: Program,
    path: str | os.PathLike[str] = "report.html",
    *,
    before: Program | None = None,
) -> Path:
    """Write a program, every step of its trail and its problems as one HTML file, which opens from disk.

    It shows the tree of modules with their sizes, a drawing of each body, the line of each node, two steps side by side, the
    findings of ``verify`` and the parts of a split program.  It contains names, the user's lines and literals among arguments,
    but not the contents of tensors.

    Args:
        program: at any stage, valid or not.
        path: the file; only a page that this function wrote is replaced.
        before: a program to compare with that is not in the trail; it comes first in the time line.

    Returns:
        The path of the file.  The same program gives the same bytes.

    Raises:
        TypeError: an argument has another type.
        FileExistsError: the existing file is not a page of ``report``.
        OSError: it cannot be written; an existing file is unchanged.

    >>> import tempfile, torch, purefx as px
    >>> program = px.transform(px.capture(torch.nn.Linear(3, 4), (torch.ones(2, 3),)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     px.report(program, f"{folder}/linear.html").name
    'linear.html'
    """
    a_program(program, "report", path=path)
    if before is not None:
        a_program(before, "report(before=...)")
    file = Path(a_path(path, "report"))
    _check_place(file)
    # Imported here, because few users of the package write reports.
    from purefx.report.gather import gather
    from purefx.report.page import page

    text = page(gather(program, before=before))
    draft = file.with_name(f".{file.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        draft.write_text(text, encoding="ascii", newline="\n")
        draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    return file


def _check_place(file: Path) -> None:
    if file.exists() and not file.is_dir():
        if not file.is_file():
            raise FileExistsError(f"{str(file)!a} is not a file")
        with file.open("rb") as there:
            begin = there.read(len(MARK))
        if begin and begin != MARK:
            raise FileExistsError(f"{str(file)!a} exists and is not a page of report; pass another path, or remove it")
