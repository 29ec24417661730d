"""Write a program, its steps and its problems as one HTML file without external resources.

``gather`` collects plain data from the program; the scripts of the page draw it.
A file that is no such page is not replaced, and one that is only when the new one is complete.
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
    """Write a program, every step of its trail and what is wrong with it as one HTML file, which opens from disk.

    It has the tree of modules with their sizes, the graph of each body drawn, the line of each node, two steps side by side, the
    findings of ``verify`` and the parts of a split program.  Contents of tensors are not in it; names, the user's lines and
    literals among arguments are.

    Args:
        program: at any stage, valid or not.
        path: the file; a page that this function wrote is replaced, anything else is not.
        before: a program to compare with that is not in the trail; it comes first in the time line.

    Returns:
        The path of the file.  The same program gives the same bytes.

    Raises:
        TypeError: an argument is of another type.
        FileExistsError: there is a file that is no such page.
        OSError: it cannot be written; what was there is unchanged.

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
    # Here, because the front door is imported by many and few write reports.
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
            raise FileExistsError(f"{str(file)!a} is there and is no page that report wrote; give another path, or remove it")
