"""The readable text form of programs: printing, and parsing what was printed.

``parse(str(program), state=...) == program``.  Everything that equality compares is in the text; meta,
trails and the contents of tensors are not.  ``syntax`` says what a form is: how a kind of value is written, printed and parsed
from one description.
"""

from __future__ import annotations

from .parser import parse
from .printer import mermaid, print_graph, print_node, print_program

__all__ = ["mermaid", "parse", "print_graph", "print_node", "print_program"]
