"""Before and after of each rewrite of ``examples/rewrites``: ``python -m examples.gallery`` writes ``docs/gallery.md``.

``scene`` chooses what of a program to show, ``drawing`` draws it, ``page`` is the text around.  ``tests/real/test_rewrites.py``
compares the page and its pictures with what the rewrites do.
"""

from __future__ import annotations
