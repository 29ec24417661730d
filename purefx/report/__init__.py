"""Write a program, its steps and its problems as one HTML file without external resources.

``gather`` collects plain data from the program; the scripts of the page draw it.  Only a file that ``report`` wrote is replaced,
when the new one is complete.  A page runs only its own scripts: names come from programs that need not be trusted, so the page
has them as JSON without characters special to HTML, and the script reads them as text.  As a second defence, a policy in the
page allows the two scripts and the style by their hashes, no fetches, and no text that becomes markup (trusted types).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import re
import threading
from importlib import resources
from pathlib import Path
from typing import Any

from purefx.ir.program import Program
from purefx.ir.validation import a_path, a_program

__all__ = ["page", "report"]

MARK = b"<!DOCTYPE html>\n<!-- made by purefx -->"
"""How a page begins."""


def report(
    program: Program, path: str | os.PathLike[str] = "report.html", *, before: Program | None = None
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
    from purefx.report.gather import gather  # few users of the package write reports

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
            raise FileExistsError(
                f"{str(file)!a} exists and is not a page of report; pass another path, or remove it"
            )


SCRIPTS = ("model.js", "draw.js", "page.js")

DAGRE = "dagre 3.1.3 (https://github.com/dagrejs/dagre), MIT"

MEANINGFUL = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "'": r"\u0027"})


def page(data: dict[str, Any]) -> str:
    """Return the page that shows data.

    Args:
        data: the result of ``gather``.

    >>> found = page({"title": 0, "strings": ["</script>"], "versions": []})
    >>> found.count("</script>"), found[:15]
    (3, '<!DOCTYPE html>')
    """
    library = f"/* {DAGRE}\n\n{_read('dagre.LICENSE')}*/\n{_read('dagre.min.js')}"
    script, style = "".join(map(_read, SCRIPTS)), _read("page.css")
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    filled = {
        "policy": html.escape(policy), "title": html.escape(data["strings"][data["title"]]), "style": style,
        "data": spelled(data), "library": library, "script": script,
    }  # fmt: skip
    return re.sub(r"\{\{(\w+)\}\}", lambda match: filled[match[1]], _read("page.html"))


def spelled(data: Any) -> str:
    r"""Return data as JSON in ASCII that is safe anywhere in HTML.

    >>> spelled(["</script><!--", "a\u2028"])
    '["\\u003c/script\\u003e\\u003c!--","a\\u2028"]'
    """
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(MEANINGFUL)


def _read(name: str) -> str:
    return (
        resources.files("purefx.report")
        .joinpath(name)
        .read_text(encoding="utf-8")
        .replace("\r\n", "\n")
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
