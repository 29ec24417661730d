"""Write a program, its steps and its problems as one HTML file without external resources.

``gather`` collects plain data from the program; the scripts of the page draw it.
"""

from __future__ import annotations

from purefx.report.write import report

__all__ = ["report"]
