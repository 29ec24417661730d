"""The readable text form of programs: printing, and parsing what was printed.

``parse(str(program), state=...) == program``.  Everything that equality compares is in the text; meta,
trails and the contents of tensors are not.  Each file but the two doors writes and reads one kind of thing, so that
the two directions stand side by side.
"""

from __future__ import annotations

from .parser import parse
from .printer import mermaid, print_graph, print_node, print_program

__all__ = ["mermaid", "parse", "print_graph", "print_node", "print_program"]
