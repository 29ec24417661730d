"""``python -m purefx``: looks at saved programs, compares and converts them.

The front door of ``_command.py``; nothing is decided here.
"""

from __future__ import annotations

import sys

from purefx._command import main

if __name__ == "__main__":
    sys.exit(main())
