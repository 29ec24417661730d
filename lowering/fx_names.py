"""Names in fx graphs: torch writes them into Python text when a graph is compiled, so they must be names.

One idea: what only a reader sees (placeholders, names of arguments) is renamed; what has to be found under its name (an
attribute, a keyword) is refused where it is none.  Running a lowered module compiles no name, whatever it is.
"""

from __future__ import annotations

import keyword
from collections.abc import Sequence
from typing import Any

import torch.fx

from ..ir.errors import UnsupportedProgram
from ..ir.names import is_identifier, is_plain_path

__all__ = ["argument_names", "check_fx_names", "uncompilable"]


def argument_names(names: Sequence[str], count: int, keywords: Sequence[Any]) -> list[str]:
    """Return what the arguments of a root are called in the code that torch makes of its graph.

    Args:
        names: as the signature has them; none, or one for each argument.
        count: how many there are.
        keywords: the keys of the keyword arguments.

    Raises:
        UnsupportedProgram: a keyword is none.

    >>> argument_names(["x", "y=f()"], 2, []), argument_names([], 1, [])
    (['x', 'arg_1'], ['arg_0'])
    """
    odd = [key for key in keywords if not is_identifier(key)]
    if odd:
        _refuse("the keyword argument", odd[0])
    return [name if is_identifier(name) else f"arg_{index}" for index, name in enumerate(names or [""] * count)]


def check_fx_names(graph: torch.fx.Graph, *, starred: bool = False) -> torch.fx.Graph:
    """Return the graph itself, its placeholders renamed where their names are none.

    Args:
        graph: as it was made of a program.
        starred: whether its placeholders may take the rest of the arguments, as in ``*rest``.

    Raises:
        UnsupportedProgram: an attribute or a keyword has a name that would be read as code.

    >>> graph = torch.fx.Graph()
    >>> _ = graph.placeholder("x=f()")
    >>> [node.target for node in check_fx_names(graph).nodes]
    ['x_f_']
    """
    for node in graph.nodes:
        if node.op == "placeholder" and not is_identifier(node.target.lstrip("*") if starred else node.target):
            node.target = node.name
        elif node.op in ("get_attr", "call_module") and not is_plain_path(node.target):
            _refuse("the attribute", node.target)
        for key in node.kwargs:
            if not is_identifier(key):
                _refuse("the keyword", key)
    return graph


def uncompilable(graph: torch.fx.Graph, error: SyntaxError) -> UnsupportedProgram:
    """Return the error that fx's text for a graph is not Python: fx writes ``self.class`` for a module called ``class``."""
    paths = [node.target for node in graph.nodes if node.op in ("get_attr", "call_module")]
    odd = dict.fromkeys(path for path in paths if any(map(keyword.iskeyword, path.split("."))))
    named = f" ({', '.join(map(ascii, odd))[:200]})" if odd else ""
    return UnsupportedProgram(
        f"torch can not compile the graph as text: {error.msg}; attributes whose names are keywords of Python{named} have no "
        "place in it: the module runs as it is, and with other names its graph can be compiled"
    )


def _refuse(what: str, name: object) -> None:
    raise UnsupportedProgram(
        f"{what} {ascii(name)[:200]} has no place in an fx graph, which torch compiles as text: the module runs as it is, and "
        "with another name it has a graph"
    )
