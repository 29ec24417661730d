"""The command line: ``python -m purefx COMMAND``.

Each command calls the library and prints its answer as text, in colours or as JSON.
"""

from __future__ import annotations

from purefx._command.running import main

__all__ = ["main"]
