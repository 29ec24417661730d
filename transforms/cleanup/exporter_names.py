"""What the exporter calls the inputs of a graph: after the caller's arguments, and after the state that they are.

One idea: a path is a name with ``_`` for all that stands between its parts: ``batch['ids']`` is ``batch_ids``, the parameter
``lin.weight`` is ``p_lin_weight``.  Nothing here knows which names are taken.
"""

from __future__ import annotations

from typing import Any

from ...ir.importing.signature import argument_keys
from ...ir.names import is_identifier
from ...ir.program import Program
from ...ir.signature import StateInput, UserInput
from ...ir.state import exporter_name

__all__ = ["exporter_names", "word"]

ROOTS = ("L__self___", "self_")
"""How tracers call the root at the beginning of a name; the exporter leaves it out."""


def exporter_names(program: Program) -> list[str]:
    """Return the name of each input of the root, as the exporter would give it before it looks for clashes.

    >>> from purefx.ir import Graph, Input, ObjectType, Signature
    >>> signature = Signature((UserInput(ObjectType(), "batch['ids']"),))
    >>> exporter_names(Program.of({"": Graph((Input("l_batch_ids_"),), ())}, signature=signature))
    ['batch_ids']
    """
    signature = program.signature
    keys = argument_keys(signature.in_spec, signature.arg_names)
    users = sum(type(spec) is UserInput for spec in signature.inputs)
    told = iter(["_".join([word(head), *map(_of_key, rest)]) for head, rest in keys] if len(keys) == users else ())
    found: list[str] = []
    for formal, spec in zip(program.main.inputs, signature.inputs, strict=True):
        match spec:
            case StateInput(slot=slot):
                found.append(exporter_name(_below_root(slot), program.state[slot]))
            case UserInput(argument=argument):
                found.append(_identifier(next(told, word(argument) or formal.name)))
            case _:
                found.append("token")
    return [name.lower() for name in found]


def word(path: str) -> str:
    """Return a path as one word: ``_`` for whatever can not be in a name.

    >>> word("batch['my ids'][0]"), word("lin.weight"), word("args[0]")
    ('batch_my_ids_0', 'lin_weight', 'args_0')
    """
    plain = path.replace("']", "").replace("['", ".").replace("]", "").replace("[", ".")
    return "".join([char if char.isascii() and char.isalnum() else "_" for char in plain])


def _of_key(key: Any) -> str:
    for field in ("key", "idx", "name"):
        if hasattr(key, field):
            return word(str(getattr(key, field)))
    return word(str(key))


def _below_root(slot: str) -> str:
    return next((slot[len(root) :] for root in ROOTS if slot.startswith(root)), slot)


def _identifier(name: str) -> str:
    if is_identifier(name):
        return name
    return f"{name}_" if is_identifier(f"{name}_") else f"_{name}"
