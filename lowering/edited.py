"""Running a graph that somebody looked at, and may have edited: for modules that run one operator at a time.

One idea: as in torch's ``InterpreterModule``, what ``module.graph`` shows is what runs, so an edit takes effect at once; until
somebody looks there is no such graph, and the body runs.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from .source import own_attribute

__all__ = ["run_graph"]


def run_graph(owner: torch.nn.Module, graph: torch.fx.Graph, values: tuple[Any, ...]) -> Any:
    """Run a graph on a module's state; its inputs and its result are flat.

    >>> graph = torch.fx.symbolic_trace(lambda x: x + 1).graph
    >>> run_graph(torch.nn.Module(), graph, (1,))
    2
    """
    return _Run(owner, graph=graph).run(*values, enable_io_processing=False)


class _Run(torch.fx.Interpreter):
    def fetch_attr(self, target: str) -> Any:
        """Return a child, a piece of state or a constant; its name may be one that modules use for something else."""
        found: Any = self.module
        for part in target.split("."):
            attributes = found.__dict__
            inside = part in attributes or any(part in attributes[kind] for kind in ("_modules", "_parameters", "_buffers"))
            found = own_attribute(found, part) if inside else getattr(found, part)
        return found
