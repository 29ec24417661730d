"""``unflatten``: in the place of ``torch.export.unflatten``.

One idea: it is the main job in one call, so it can be nothing else than import, the default pipeline and lowering; what
comes back is an ``UnflattenedModule``, because that is what its users expect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from purefx.ir.importing import import_ep
from purefx.lowering import lower
from purefx.transforms import transform

if TYPE_CHECKING:
    from torch.export import ExportedProgram, FlatArgsAdapter, UnflattenedModule

__all__ = ["unflatten"]


def unflatten(
    module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None, *, forward: ExportedProgram | None = None
) -> UnflattenedModule:
    """Return a module with the hierarchy of the module that was exported; takes and gives what it took and gave.

    Args:
        module: the exported program; it is not changed, and nothing of it is kept.
        flat_args_adapter: makes arguments that are nested differently from the exported ones into the exported ones.
        forward: where ``module`` is a joint forward and backward program, the one that it was made from, see ``import_ep``.

    Returns:
        An ``UnflattenedModule`` of ``InterpreterModule``s. ``lower`` makes faster ones of generated code, and has more options.

    Raises:
        InvalidProgram: the exported program's graph and signature disagree.
        UnsupportedProgram: it has something that can not be represented or run faithfully; the message names it.
        TypeError: it is not an exported program, or the adapter is none.

    >>> import torch, purefx as px
    >>> ep = torch.export.export(torch.nn.Linear(2, 1), (torch.ones(1, 2),))
    >>> px.unflatten(ep)(torch.ones(1, 2)).shape
    torch.Size([1, 1])
    """
    lowered = lower(transform(import_ep(module, forward=forward)), to="interpreter", flat_args_adapter=flat_args_adapter)
    return cast("UnflattenedModule", lowered)
