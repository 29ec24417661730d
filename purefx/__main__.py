"""``python -m purefx``: look at saved programs, compare, convert and split them.

The entry point of ``_command``.
"""

from __future__ import annotations

import sys

from purefx._command import main

if __name__ == "__main__":
    sys.exit(main())
