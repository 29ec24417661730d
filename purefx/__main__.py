"""``python -m purefx``: inspect, compare, convert and split programs in files.

The entry point of ``_command``.
"""

from __future__ import annotations

import sys

from purefx._command import main

if __name__ == "__main__":
    sys.exit(main())
