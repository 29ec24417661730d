"""The command line: ``python -m purefx COMMAND`` looks at saved programs, compares, converts and splits them.

``running`` is ``main``; ``options`` parses what was typed, ``files`` reads and writes, ``output`` prints an ``Answer`` as text,
in colours or as JSON.  The commands: ``looking`` (show, verify, digest, diff), ``sizes`` (stats, tree), ``origins`` (history),
``writing`` (convert, report), ``splitting`` (split).  The library can do everything that is done here.
"""

from __future__ import annotations

from purefx._command.running import main

__all__ = ["main"]
