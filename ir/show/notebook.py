"""Notebook pages of a program, a graph, a diff and a finding: compact, folded, of a bounded size; and their markup.

A page states its omissions.  Programs need not be valid, so nothing here relies on a field: a value that cannot be printed is
shown as such.  Pages have no scripts, links or ids, so a notebook may have any number of them.  Colours are mixed with that of
the surrounding text, so that they are legible in dark and light themes.  Steps, histories and pictures are in ``purefx.report``;
counts are in ``purefx.stats``.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import torch

from ..analysis.diff import Diff, print_diff
from ..calls.call_graph import instance_paths, times_called
from ..errors import InvalidProgram, Violation
from ..graph import Graph, Node
from ..meta import source_line
from ..names import escaped, last_name
from ..persistent import html_of, summary_of
from ..program import Program
from ..signature import Signature
from ..tensors import tensors_among
from ..text.arguments import print_arg
from ..text.contract import INPUT, OUTPUT
from ..text.lexer import spell_path, spell_value
from ..text.programs import counted, print_node, print_program
from ..text.state import DTYPE, print_state
from ..torch_private import device_of
from .styled import WORDS

LONGEST = 240
"""Characters of a line."""

ROWS = 200
"""Rows of a list."""

STYLE = """
.purefx{font:12px/1.5 var(--jp-code-font-family,ui-monospace,Menlo,Consolas,monospace);overflow-x:auto;
 color:var(--jp-content-font-color1,var(--vscode-editor-foreground,inherit))}
.purefx table{border-collapse:collapse;margin:0 0 0 1.2em;font:inherit;color:inherit}
.purefx td{padding:0 1.5em 0 0;border:0;text-align:left;white-space:pre;vertical-align:top}
.purefx tr{background:none!important}
.purefx details details{margin-left:1.2em}
.purefx .dim{color:color-mix(in srgb,currentColor 72%,transparent)}
.purefx .add,.purefx .string,.purefx .operator{color:color-mix(in srgb,#1a9a45 50%,currentColor)}
.purefx .gone,.purefx .effects{color:color-mix(in srgb,#e5534b 50%,currentColor)}
.purefx .graph,.purefx .rule{color:color-mix(in srgb,#b45fd6 50%,currentColor)}
.purefx .defined,.purefx .place{color:color-mix(in srgb,#2f86d6 50%,currentColor)}
.purefx .keyword,.purefx .rule{font-weight:600}
"""
"""Half of each colour is that of the surrounding text, which is dark on a light page and light on a dark one."""


Room = Iterator[int]
"""One number for each line that may still be shown, which bounds the size of a page."""


def fitting(items: Iterable[Any], room: Room) -> list[Any]:
    """Return the items that may be shown, one line each.

    >>> room = iter(range(5))
    >>> fitting("abc", room), fitting("def", room), fitting("g", room)
    (['a', 'b', 'c'], ['d', 'e'], [])
    """
    return [item for item, _ in zip(items, room, strict=False)]


def text(value: object, longest: int = LONGEST) -> str:
    r"""Return any text as markup: one line, printable, escaped, and cut if it is long.

    >>> text("<b>\x1b")
    '&lt;b&gt;\\x1b'
    """
    return html.escape(shown(value, longest))


def dim(value: object) -> str:
    """Return a text that is less important, as markup; nothing for None.

    >>> dim("f32"), dim(None)
    ('<span class="dim">f32</span>', '')
    """
    return "" if value is None else f'<span class="dim">{text(value)}</span>'


def code(line: object) -> str:
    """Return a line of the text form as markup, with coloured words.

    >>> code('y = aten.relu.default(x)')
    '<span class="defined">y</span> = <span class="operator">aten.relu.default</span>(x)'
    """
    line = shown(line, LONGEST)
    parts: list[str] = []
    end = 0
    for match in WORDS.finditer(line):
        found = html.escape(match[0])
        parts += [
            html.escape(line[end : match.start()]),
            f'<span class="{match.lastgroup}">{found}</span>',
        ]
        end = match.end()
    return "".join([*parts, html.escape(line[end:])])


def titled(markup: str, title: object) -> str:
    """Return markup with a tooltip.

    >>> titled("y", 'm.py:3 in "f"')
    '<span title="m.py:3 in &quot;f&quot;">y</span>'
    """
    return markup if title is None else f'<span title="{text(title)}">{markup}</span>'


def table(rows: Iterable[Sequence[str]]) -> str:
    """Return rows of cells of markup as a table; nothing for no rows.

    >>> table([("a", "b")])
    '<table><tr><td>a</td><td>b</td></tr></table>'
    """
    lines = [f"<tr>{''.join([f'<td>{cell}</td>' for cell in row])}</tr>" for row in rows]
    return f"<table>{''.join(lines)}</table>" if lines else ""


def fold(head: str, body: str, *, is_open: bool = False) -> str:
    """Return a head with a body that folds; the head alone if the body is empty.

    Args:
        head: markup of one line.
        body: markup.
        is_open: whether it starts unfolded.

    >>> fold("state", "w"), fold("state", "")
    ('<details><summary>state</summary>w</details>', '<div>state</div>')
    """
    return (
        f"<details{' open' if is_open else ''}><summary>{head}</summary>{body}</details>"
        if body
        else f"<div>{head}</div>"
    )


def listed(what: str, lines: Sequence[str], count: int) -> str:
    """Return a list that folds under its name and its length; nothing for an empty one.

    Args:
        what: its name.
        lines: the shown lines, as markup.
        count: the number of all lines.

    >>> listed("steps", ["outline()"], 2).endswith("... 1 line more, which print(...) shows</span></div></details>")
    True
    """
    rows = table([(line,) for line in lines]) + more(count - len(lines), "line")
    return fold(f"{what} {dim(f'{count:,}')}", rows) if count else ""


def more(count: int, word: str) -> str:
    """Return a line with the number of omitted lines; nothing for 0.

    >>> more(0, "node"), more(1234, "node")
    ('', '<div><span class="dim">... 1,234 nodes more, which print(...) shows</span></div>')
    """
    return (
        f"<div>{dim(f'... {counted(count, word)} more, which print(...) shows')}</div>"
        if count > 0
        else ""
    )


def page(*parts: str) -> str:
    """Return markup as a page of a notebook.

    >>> page("<b>x</b>").endswith("<b>x</b></div>")
    True
    """
    return f'<div class="purefx"><style>{STYLE}</style>{"".join(parts)}</div>'


MOST = 600
"""Characters of a text; names in programs may be of any length."""


def safely(printed: Callable[[], Any], otherwise: Any = "(cannot be printed)") -> Any:
    """Return the result of a function, or another value if it raises.

    Args:
        printed: prints a value of any type.
        otherwise: the result if the function raises.

    >>> safely(lambda: 1 // 0), safely(lambda: 1)
    ('(cannot be printed)', 1)
    """
    try:
        return printed()
    except Exception:  # noqa: BLE001  an invalid value may raise anything; the rest of the page is still shown
        return otherwise


def shown(text: Any, longest: int = MOST) -> str:
    r"""Return a text on one line, printable and not too long.

    Args:
        text: any object; its ``str`` is shown.
        longest: the number of characters after which it is cut.

    >>> shown("a\nb"), len(shown("x" * 10**6)), shown("x" * 10**6)[-13:]
    ('a\\nb', 614, '... (1000000)')
    """
    text = str(text)
    cut = text if len(text) <= longest else f"{text[:longest]} ... ({len(text)})"
    return escaped(cut).replace("\n", "\\n")


def described(value: Any) -> str | None:
    """Describe a value in a word or two; return None if it is unknown.

    Args:
        value: the ``val`` of a meta.

    >>> described(torch.ones(2, 3)), described((torch.ones(1, dtype=torch.bool), 7)), described(None) is None
    ('f32[2, 3] cpu', '(bool[1] cpu, 7)', True)
    """
    if isinstance(value, torch.Tensor):
        dtype = DTYPE.write(value.dtype).removeprefix("torch.")
        return safely(lambda: f"{dtype}[{', '.join(map(str, value.shape))}] {device_of(value)}")
    if isinstance(value, tuple | list):
        parts = [described(part) or "None" for part in value[:8]]
        return f"({', '.join([*parts, *(['...'] if len(value) > 8 else [])])})"
    return None if value is None else safely(lambda: str(value))


LINES = 600
"""Nodes, or lines of a diff, on one page."""

OPEN = 60
"""The root starts unfolded if it has at most so many lines."""

FINDINGS = 12

SUMMARY = 60
"""The maximal number of lines that ``print`` shows of a program."""


def program_page(program: Program) -> str:
    """Return a program as HTML: its bodies, each once, its state and its steps.

    Args:
        program: at any stage, valid or not.

    >>> "0 nodes" in program_page(Program.of({"": Graph((), ())}))
    True
    """
    title, sizes, facts, rows = _overview(program)
    room = iter(range(LINES))
    bodies: list[str] = []
    for name, times, kind in rows[:ROWS]:
        head = f'<span class="graph">@{text(spell_path(name))}</span>{f" {times}" if times else ""} {dim(kind)}'
        specs = program.signature if name == program.root else None
        shown = partial(_body, program.graphs[name], head, room, specs)
        bodies.append(safely(shown, fold(f"{head} (cannot be shown)", "")))
    bodies.append(more(len(rows) - ROWS, "graph"))
    head = f"<div><b>{text(title)}</b> {', '.join(sizes)} {dim(facts)}</div>"
    state = safely(
        lambda: listed(
            "state", list(map(code, print_state(program.state)[:ROWS])), len(program.state.order)
        ),
        "",
    )
    steps = [text(safely(lambda step=step: str(step))) for step in program.trail[:ROWS]]
    return page(head, *bodies, state, listed("steps", steps, len(program.trail)))


def _overview(program: Program) -> tuple[str, list[str], str, list[tuple[str, str, str | None]]]:
    """Return the class of a program, its sizes, its facts, and for each graph the id, the number of calls and the class."""
    classes = safely(
        lambda: {one.path: one.type_name for one in program.modules if one.type_name is not None},
        {},
    )
    paths, counts = (
        safely(lambda: instance_paths(program), {}),
        safely(lambda: times_called(program), {}),
    )
    order = list(dict.fromkeys((*safely(lambda: program.order, ()), *program.graphs)))
    nodes = sum(
        [safely(lambda graph=graph: len(graph.nodes), 0) for graph in program.graphs.values()]
    )
    rows = [
        (
            name,
            f"x{counts[name]:,}" if counts.get(name, 0) > 1 else "",
            classes.get(paths.get(name, name)),
        )
        for name in order
    ]
    title, sizes = (
        last_name(classes.get("", "")) or "program",
        [counted(len(order), "graph"), counted(nodes, "node")],
    )
    return title, sizes, safely(lambda: ", ".join(sorted(map(str, program.facts)))), rows


def summary(program: Program) -> str:
    """Return the output of ``print`` for a program: its text if that is short, else a line for each graph, state and steps.

    Args:
        program: at any stage, valid or not.

    >>> print(summary(Program.of({"": Graph((), ())})), end="")
    program {
      graph @""() {
        return ()
      }
    }
    """
    if sum(len(graph.nodes) for graph in program.graphs.values()) <= SUMMARY:
        full = print_program(program)
        if full.count("\n") <= SUMMARY:
            return full
    title, sizes, facts, rows = _overview(program)
    table = [
        (
            f"  @{spell_path(name)}",
            times,
            last_name(kind or ""),
            counted(len(program.graphs[name].nodes), "node"),
        )
        for name, times, kind in rows[: SUMMARY - 10]
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = [
        "  ".join([cell.ljust(width) for cell, width in zip(row, widths, strict=True)]).rstrip()
        for row in table
    ]
    lines += (
        [f"  ... {counted(len(rows) - len(table), 'graph')} more"] if len(rows) > len(table) else []
    )
    cells = {slot.cell: slot.value for _, slot in program.state.pairs}.values()
    size = sum(value.numel() * value.element_size() for value in tensors_among(cells))
    lines.append(f"state: {counted(len(program.state.order), 'name')}, {size:,} bytes")
    lines += [f"steps: {shown(', '.join(map(str, program.trail)))}"] if program.trail else []
    lines.append(
        "program.text() is all of it, program.text(name) one graph, px.tree(program) the modules"
    )
    return "\n".join([f"{title}: {', '.join(filter(None, (*sizes, facts)))}", *lines, ""])


def graph_page(graph: Graph) -> str:
    """Return a graph as HTML.

    Args:
        graph: of a program, valid or not.

    >>> "</span> ()" in graph_page(Graph((), ()))
    True
    """
    return page(_body(graph, "<b>graph</b>", iter(range(LINES))))


def _body(graph: Graph, head: str, room: Room, signature: Signature | None = None) -> str:
    inputs, nodes = fitting(graph.inputs, room), fitting(graph.nodes, room)
    roles: Sequence[Any] = () if signature is None else signature.inputs
    rows: list[tuple[str, str]] = []
    for formal, spec in zip_longest(inputs, roles[: len(inputs)]):
        about = (
            described(formal.val) if spec is None else safely(lambda spec=spec: INPUT.write(spec))
        )
        rows.append(
            (f'<span class="keyword">input</span> {code(spell_value(formal.name))}', dim(about))
        )
    for node in nodes:
        line = titled(
            code(safely(lambda node=node: print_node(node))),
            safely(lambda node=node: source_line(node.meta), None),
        )
        rows.append((line, dim(safely(lambda node=node: described(node.val), None))))
    outputs = (
        []
        if signature is None
        else [safely(lambda spec=spec: OUTPUT.write(spec)) for spec in signature.outputs[:ROWS]]
    )
    results = ", ".join(outputs) if {*outputs, "user"} != {"user"} else None
    rows += [(code(f"return {safely(lambda: print_arg(graph.output))}"), dim(results))]
    left = len(graph.inputs) - len(inputs) + len(graph.nodes) - len(nodes)
    title = f"{head} {dim(counted(len(graph.nodes), 'node'))}"
    return fold(
        title, table(rows) + more(left, "line"), is_open=signature is not None and len(rows) <= OPEN
    )


def diff_page(diff: Diff) -> str:
    """Return a diff as HTML; each differing graph and each other kind of difference folds.

    Args:
        diff: the result of ``purefx.diff``.

    >>> '<span class="same">  flat</span>' in diff_page(Diff(contents=("flat",)))
    True
    """
    head, *lines = print_diff(diff).split("\n")
    room, sections = iter(range(LINES)), list[list[str]]()
    for line in lines:
        if line[:1] in SIGNS:
            sections[-1].append(line)
        else:
            sections.append([line])
    shown = [_section(*found, room=room) for found in sections[:ROWS]]
    return page(f"<div><b>{text(head)}</b></div>", *shown, more(len(sections) - ROWS, "section"))


SIGNS = {"+": "add", "-": "gone", "@": "place", " ": "same"}
"""The style of a line of a diff, by its first letter."""


def _section(what: str, *lines: str, room: Room) -> str:
    kept = fitting(lines, room)
    rows = [(f'<span class="{SIGNS[line[0]]}">{text(line)}</span>',) for line in kept]
    return fold(
        code(what), table(rows) + more(len(lines) - len(kept), "line"), is_open=len(lines) <= OPEN
    )


def finding_page(*found: Violation) -> str:
    """Return findings of ``verify`` as HTML.

    Args:
        found: the findings.

    >>> "at enc / y" in finding_page(Violation("unique-names", "the name is taken", graph="enc", node="y"))
    True
    """
    return page(
        *[_finding(one) for one in found[:FINDINGS]], more(len(found) - FINDINGS, "finding")
    )


def _finding(found: Violation) -> str:
    head, *lines = str(found).split("\n")
    rule, _, message = head.partition(": ")
    rows = [
        (f"<b>{code(line)}</b>" if line.lstrip().startswith(">") else code(line),)
        for line in lines[:ROWS]
    ]
    return fold(
        f'<span class="rule">{text(rule)}</span> {text(message, 3000)}', table(rows), is_open=True
    )


html_of.register(Program, program_page)
summary_of.register(Program, summary)
html_of.register(Graph, graph_page)
html_of.register(Node, lambda node: page(code(print_node(node)), dim(described(node.val))))
html_of.register(Diff, diff_page)
html_of.register(Violation, finding_page)
html_of.register(InvalidProgram, lambda error: finding_page(*error.violations))
