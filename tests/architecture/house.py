"""The report of the house: files, lines of code by folder, imports, circles, the slowest tests."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import xml.etree.ElementTree as ET
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import networkx as nx
from attrs import frozen

from tests.architecture.checkers import imports
from tests.architecture.sources import LAYERS, ROOT, Source, sources

TIMES = ROOT / "build" / "tests.xml"
"""What the last ``make test`` wrote: seconds for each test."""

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
"""The kinds of tokens that are no code."""


@frozen
class Weight:
    """Lines of a file or of a folder, by kind."""

    files: int = 0
    lines: int = 0
    code: int = 0
    docs: int = 0
    imports: int = 0

    def __add__(self, other: Weight) -> Weight:
        """Add two weights."""
        return Weight(
            *(
                getattr(self, name) + getattr(other, name)
                for name in ("files", "lines", "code", "docs", "imports")
            )
        )


def lines_of(nodes: Iterable[ast.AST]) -> set[int]:
    """Return the numbers of the lines that some nodes cover."""
    return {
        line
        for node in nodes
        for line in range(getattr(node, "lineno", 1), (getattr(node, "end_lineno", 0) or 0) + 1)
    }


def docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Iterate over the docstrings of modules, classes and functions, and of attributes."""
    for node in ast.walk(tree):
        for statement in (
            getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []
        ):
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                yield statement


def weight(source: Source) -> Weight:
    """Count one file."""
    docs = lines_of(docstrings(source.tree))
    imported = lines_of(
        node for node in ast.walk(source.tree) if isinstance(node, ast.Import | ast.ImportFrom)
    )
    tokens = tokenize.generate_tokens(io.StringIO(source.text).readline)
    written = {
        line
        for token in tokens
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return Weight(
        1, len(source.text.splitlines()), len(written - docs - imported), len(docs), len(imported)
    )


def circles(files: Iterable[Source]) -> list[list[str]]:
    """Return the sets of modules that import one another, imports inside functions included, the largest first."""
    known = {source.module: source for source in files}
    graph = nx.DiGraph()
    for source in known.values():
        for _, name in imports(source):
            target = name if name in known else name.rpartition(".")[0]
            if target in known and target != source.module:
                graph.add_edge(source.module, target)
    found = [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]
    return sorted(found, key=lambda group: (-len(group), group))


def slowest(path: Path = TIMES) -> list[tuple[float, str]]:
    """Return the seconds of each test file in the last run of all tests, the slowest first; nothing if there was none."""
    seconds = Counter[str]()
    for case in ET.parse(path).iter("testcase") if path.exists() else ():
        seconds[case.get("classname", "")] += float(case.get("time", 0))
    return [(taken, name) for name, taken in seconds.most_common()]


FILE_LINES = 400
FUNCTION_LINES = 40


def long_functions(files: Iterable[Source], at_most: int = FUNCTION_LINES) -> list[tuple[int, str]]:
    """Return the functions with more lines than one should have, docstrings not counted, the longest first."""
    found: list[tuple[int, str]] = []
    for source in files:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = (
                    node.body[1]
                    if ast.get_docstring(node) is not None and len(node.body) > 1
                    else node
                )
                count = (node.end_lineno or node.lineno) - first.lineno + 1
                found += (
                    [(count, f"{source.path}:{node.lineno} {node.name}")] if count > at_most else []
                )
    return sorted(found, reverse=True)


def by_folder(files: Iterable[Source]) -> dict[str, Weight]:
    """Return the weight of each folder that has files of its own."""
    found: dict[str, Weight] = defaultdict(Weight)
    for source in files:
        found[source.path.rpartition("/")[0]] += weight(source)
    return dict(found)


def report(product: Sequence[Source], tests: Sequence[Source]) -> Iterator[str]:
    """Iterate over the lines of the report."""
    for title, files in (("product", product), ("tests", tests)):
        folders = by_folder(files)
        yield f"{title:<30}{'files':>7}{'lines':>8}{'code':>8}{'docs':>8}{'imports':>9}"
        for name, found in [*sorted(folders.items()), ("all", sum(folders.values(), Weight()))]:
            share = f"{found.imports / found.lines:6.1%}" if found.lines else ""
            yield f"  {name:<28}{found.files:>7}{found.lines:>8}{found.code:>8}{found.docs:>8}{found.imports:>9} {share}"
    lengths = sorted(
        ((len(source.text.splitlines()), source.path) for source in product), reverse=True
    )
    over = [f"{path} {lines}" for lines, path in lengths if lines > FILE_LINES]
    yield f"files over {FILE_LINES} lines: {len(over)}"
    yield from (f"  {line}" for line in over)
    longest = long_functions(product)
    yield f"functions over {FUNCTION_LINES} lines: {len(longest)}"
    yield from (f"  {place} {lines}" for lines, place in longest)
    groups = circles(product)
    yield f"import circles, imports inside functions included: {len(groups)}"
    yield from (
        f"  {len(group)} files: {', '.join(group[:6])}{' ...' if len(group) > 6 else ''}"
        for group in groups
    )
    times = slowest()
    yield (
        f"slowest test files of {sum(taken for taken, _ in times):.0f} s"
        if times
        else "no times of tests: run make test"
    )
    yield from (f"  {taken:7.1f} s  {name}" for taken, name in times[:20])


if __name__ == "__main__":
    sys.stdout.write("\n".join(report(sources(*LAYERS), sources("tests"))) + "\n")
