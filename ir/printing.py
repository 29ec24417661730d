"""``text_of``: how a value prints itself, without knowing its printer.

One idea: values are below their text form, so the printers of ``text/`` and ``diff/`` register themselves for the types they
print, and ``__str__`` asks here.  It prints nothing by itself.
"""

from __future__ import annotations

from functools import singledispatch

__all__ = ["text_of"]


@singledispatch
def text_of(value: object) -> str:
    r"""Return a value in the text form: ``text_of.register(Type, printer)`` says how.

    Args:
        value: a program, a graph, a node, a diff; anything else is shown as by ``repr``.

    >>> from purefx.ir import Graph
    >>> text_of(Graph((), (), ()))
    'graph @""() {\n  return ()\n}'
    >>> text_of(3)
    '3'
    """
    return repr(value)
