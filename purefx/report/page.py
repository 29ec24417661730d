"""``page``: write data as one HTML file, which runs only its own scripts.

Names come from programs that need not be trusted.  The page has them as JSON without characters special to HTML, and the
script reads them as text.  As a second defence, a policy in the page allows the two scripts and the style by their hashes, no
fetches, and no text that becomes markup (trusted types).
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from importlib import resources
from typing import Any

__all__ = ["page", "spelled"]

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
    return resources.files("purefx.report").joinpath(name).read_text(encoding="utf-8").replace("\r\n", "\n")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
