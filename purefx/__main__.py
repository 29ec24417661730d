"""``python -m purefx``: show, compare and convert saved programs.

The entry point of ``_command.py``.
"""

from __future__ import annotations

import sys

from purefx._command import main

if __name__ == "__main__":
    sys.exit(main())
