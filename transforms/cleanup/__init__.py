"""Clean-up passes: a raw trace becomes a clean program, one pure transformation for each step.

One idea: what a tracer leaves behind (tensors among arguments, names of its own, inputs that are state) is put right by passes
that can be used one by one, on any program.  Nothing here traces.
"""

from __future__ import annotations
