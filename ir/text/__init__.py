"""The readable text form of programs: printing, and parsing what was printed.

``parse(str(program), state=...) == program``.  Everything that equality compares is in the text; meta,
trails and the contents of tensors are not.  Except for the printer and the parser, each file writes and reads one kind of
value, so that both directions are side by side.
"""

from __future__ import annotations

from .parser import parse
from .printer import mermaid, print_graph, print_node, print_program

__all__ = ["mermaid", "parse", "print_graph", "print_node", "print_program"]
