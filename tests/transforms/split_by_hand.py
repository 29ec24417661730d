"""Split programs that are written by hand, as text: the root calls the parts, which are told from other modules by their type.

A test is its graphs; what else a program needs is put around them.  It asserts only that they are valid.
"""

from __future__ import annotations

import re
from textwrap import dedent

import purefx as px
from purefx.ir.calls.parts import PART


def split_tree(graphs: str, *sections: str, takes: str = "user x: f32[2]", gives: int = 1) -> px.Program:
    """Return a split program from the text of its graphs; every module that the root calls is a part."""
    root = graphs[graphs.index('@""') :].partition("}")[0]
    names = dict.fromkeys(re.findall(r"call @\w+\(.*\) as (\w+)", root))
    modules = "modules {\n" + "\n".join(f'{name}: "{PART}"' for name in names) + "\n}"
    head = (f"takes {{\n{takes}\n}}", "gives {\n" + "user\n" * gives + "}")
    program = px.parse("\n".join(["program {", *head, *sections, modules, dedent(graphs), "}"]))
    assert px.verify(program) == ()
    return program
