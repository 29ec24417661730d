"""Print programs as readable text and parse that text.

``parse(program.text(), state=...) == program``: the text has all that equality compares, so no meta, trail or tensor contents.
``syntax`` describes each form once, for the printer and the parser.
"""

from __future__ import annotations

from .programs import mermaid, parse, print_graph, print_node, print_program

__all__ = ["mermaid", "parse", "print_graph", "print_node", "print_program"]
