"""What the site needs of Sphinx beyond its own extensions.

- Docstrings are in Google's style, but results and attributes are told in prose: napoleon would take ``Which one: ...`` for a
  type.  Data of a front door is described where it is defined.  A transformation is called with a number as its fuel.
- The text form of programs has colours, and flowcharts of mermaid are drawn (``flowchart.py``).
- Code in prose that is a name (``px.outline``) leads to its description, and a path (``ir/graph.py``) to the file, which is
  a page of the site.  A description leads to the file as well.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from flowchart import flowchart
from pygments.lexer import RegexLexer
from pygments.lexers.special import TextLexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text
from sphinx.addnodes import download_reference
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring
from sphinx.highlighting import PygmentsBridge
from sphinx.pycode import ModuleAnalyzer
from sphinx.util.nodes import make_refnode
from sphinx.util.osutil import relative_uri

ROOT = Path(__file__).parents[2]

NAME = re.compile(r"(?:px|purefx)\.([\w.]+)(?:\(.*\))?", re.DOTALL)

SOURCE = re.compile(r"(?:ir|transforms|lowering|laws|purefx|tests|bench|examples)/[\w/.]+\.py")

DIALECT = Config(napoleon_use_rtype=False)


class Docstring(GoogleDocstring):
    """A docstring whose section of results is prose."""

    def _consume_returns_section(
        self,
        preprocess_types: bool = False,  # noqa: ARG002, FBT001, FBT002
    ) -> list[tuple[str, str, list[str]]]:
        lines = self._dedent(self._consume_to_next_section())
        return [("", "", lines)] if lines else []


class ProgramLexer(RegexLexer):
    """The text form of a program, or two beside each other."""

    name = "purefx"
    aliases = ("purefx",)
    tokens: ClassVar = {
        "root": [
            (r"#.*|  in [^|\n]*", Comment),
            (r'"(?:\\.|[^"\\])*"', String),
            (
                r"\b(program|graph|return|call|get|facts|modules|state|takes|gives|names|as)\b",
                Keyword,
            ),
            (r"@[\w./]+", Name.Function),
            (r"\b[a-z_]+(?:\.\w+)+(?=\()", Name.Builtin),
            (r"-?\b\d[\d.e+-]*\b", Number),
            (r"[!=:{}()\[\],|]", Operator),
            (r"\w+|\s+|.", Text),
        ]
    }


def read_docstring(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Turn the sections of a docstring into fields."""
    if what == "data":
        lines[:] = [
            *comment(name.rpartition(".")[2], thing),
            "",
        ]  # what the directive holds comes after it
    elif what not in {"attribute", "property"}:
        lines[:] = Docstring(lines, DIALECT, app, what, name, thing, options).lines()


def comment(name: str, thing: Any) -> list[str]:
    """Return what is written under a value where it is defined."""
    for module in sorted(each for each in sys.modules if each.startswith("purefx.")):
        if vars(sys.modules[module]).get(name) is thing:
            found = ModuleAnalyzer.for_module(module).find_attr_docs().get(("", name))
            if found:
                return found
    return []


def read_signature(*event: Any) -> tuple[str, str] | None:
    """Say what a transformation is called with, which is not what its function gets."""
    shown, result = event[-2:]
    return (
        (shown.replace("fuel: Fuel = UNLIMITED", "fuel: int | None = None"), result)
        if "UNLIMITED" in (shown or "")
        else None
    )


def draw_flowcharts(app: Sphinx, doctree: nodes.document) -> None:  # noqa: ARG001
    """Draw the blocks of mermaid."""
    for node in list(doctree.findall(nodes.literal_block)):
        if node.get("language") == "mermaid":
            node.replace_self(nodes.raw("", flowchart(node.astext()), format="html"))


def link_code(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Make links of code that is a public name or a path, and of links to files."""
    for node in list(doctree.findall(nodes.literal)):
        if isinstance(node.parent, nodes.reference | download_reference | nodes.title):
            continue
        text = node.astext()
        if match := NAME.fullmatch(text):
            found = app.env.domains.python_domain.objects.get(f"purefx.{match[1]}")
            if found:
                node.replace_self(
                    make_refnode(app.builder, page, found.docname, found.node_id, node.deepcopy())
                )
        elif SOURCE.fullmatch(text) and (ROOT / text).exists():
            node.replace_self(link_to(app, page, text, node))
    for node in list(doctree.findall(download_reference)):
        path = (
            (ROOT / page).parent.joinpath(node["reftarget"]).resolve().relative_to(ROOT).as_posix()
        )
        if path.endswith(".py"):
            node.replace_self(link_to(app, page, path, *node.children))


def link_to(app: Sphinx, page: str, path: str, *inside: nodes.Node) -> nodes.reference:
    """Return a link to the page of a source file, which it asks for."""
    app.env.purefx_sources.add(path)
    there = relative_uri(
        app.builder.get_target_uri(page), app.builder.get_target_uri(f"sources/{path}")
    )
    return nodes.reference(
        "", "", *[each.deepcopy() for each in inside], refuri=there, internal=True
    )


def source_of(app: Sphinx, module: str, name: str) -> str | None:
    """Return where a page of the reference finds the source of a name, which it asks for."""
    try:
        thing = inspect.unwrap(reduce(getattr, name.split("."), sys.modules[module]))
        path = Path(inspect.getsourcefile(thing) or "").relative_to(ROOT).as_posix()
        _, first = inspect.getsourcelines(thing)
    except (AttributeError, TypeError, OSError, ValueError):
        return None  # a field, data, or of another library
    app.env.purefx_sources.add(path)
    return f"../../sources/{path}.html#line-{first}"


def source_pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Iterate over the pages of the source files that are linked to."""
    for path in sorted(app.env.purefx_sources):
        text = (ROOT / path).read_text(encoding="utf-8")
        shown = PygmentsBridge("html").highlight_block(
            text, "python", linenos="inline", lineanchors="line"
        )
        yield f"sources/{path}", {"title": path, "body": f"<h1>{path}</h1>{shown}"}, "page.html"


def begin(app: Sphinx) -> None:
    """Note which source files are linked to."""
    app.env.purefx_sources = set[str]()
    app.config.linkcode_resolve = lambda _, name: source_of(app, name["module"], name["fullname"])


def enter(app: Sphinx, failure: Exception | None) -> None:
    """Write a page at the root that leads to the first one."""
    if failure is None:
        first = f"{app.config.root_doc}.html"
        page = (
            f'<meta charset="utf-8"><meta http-equiv="refresh" content="0; url={first}">'
            "<title>purefx</title>"
        )
        (Path(app.outdir) / "index.html").write_text(f"{page}\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Add all of that."""
    app.add_lexer("purefx", ProgramLexer)
    app.add_lexer("mermaid", TextLexer)
    app.connect("builder-inited", begin)
    app.connect("autodoc-process-docstring", read_docstring)
    app.connect("autodoc-process-signature", read_signature)
    app.connect("doctree-read", draw_flowcharts)
    app.connect("doctree-resolved", link_code)
    app.connect("html-collect-pages", source_pages)
    app.connect("build-finished", enter)
    return {"parallel_read_safe": False, "parallel_write_safe": False}
