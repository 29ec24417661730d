"""The names that ``purefx`` once had at its front door, and where they are now.

Each gives a ``DeprecationWarning`` for one version and goes with the next; nothing in the library says them.
"""

from __future__ import annotations

import importlib
import sys
import warnings
from typing import Any

from purefx import errors, ir

VALUES = frozenset({
    "ANYTHING", "Arg", "ArgAt", "Body", "CallSignature", "Constraints", "Diff", "InputGradient", "InputMutation", "Items",
    "LiteralType", "LossOutput", "Module", "NumberType", "ObjectType", "PMap", "Part", "Range", "Record", "RestType", "Signature",
    "Slot", "SlotKind", "State", "StateGradient", "StateInput", "StateMutation", "Step", "TensorType", "Token", "UserInput",
    "UserOutput", "Whereabouts", "pmap",
})  # fmt: skip
"""What is a value of a program and seldom written by hand: it is in ``purefx.ir``."""

RESULTS = {"ModuleStats": "purefx.stats", "Stats": "purefx.stats", "Tie": "purefx.lowering"}
"""What is a part of what a function of the front door returns: ``from purefx.stats import ModuleStats``."""


def moved(name: str) -> Any:
    """Return what ``purefx`` called ``name`` before, with a ``DeprecationWarning`` that says where it is.

    Raises:
        AttributeError: it never had that name.

    >>> with warnings.catch_warnings(record=True, action="always") as said:
    ...     moved("Slot").__name__
    'Slot'
    >>> print(said[0].message)
    purefx.Slot is purefx.ir.Slot now; the old name goes in the next version
    """
    home = importlib.import_module(RESULTS[name]) if name in RESULTS else ir if name in VALUES else errors
    if home is errors and name not in errors.__all__:
        message = f"module 'purefx' has no attribute {name!r}"
        raise AttributeError(message, name=name, obj=sys.modules["purefx"])  # so that Python says what is near
    message = f"purefx.{name} is {home.__name__}.{name} now; the old name goes in the next version"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return getattr(home, name)
