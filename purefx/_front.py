"""``Front``: a package whose public names are imported at their first use.

``import purefx`` is therefore fast, and a name imports only what it needs.  Type checkers read plain imports instead, and a
test compares them with ``HOMES``.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

__all__ = ["DOORS", "HOMES", "Front"]

DOORS = ("errors", "ir", "laws", "rules", "training")
"""The packages and modules of ``purefx`` that need no separate import."""

_NAMES = {
    "_doors": "capture to_ep unflatten",
    "ir": "PURE Call Effects Frame Get Graph Input Node Op Program PurefxError Ref declare op",
    "ir.analysis.diff": "diff",
    "ir.analysis.digest": "alpha_equal digest",
    "ir.analysis.history": "became history",
    "ir.calls.parts": "parts split_provenance",
    "ir.importing": "import_ep import_fx",
    "ir.store": "load save",
    "ir.text": "mermaid parse",
    "ir.verify": "verify",
    "laws.first_difference": "first_difference",
    "lowering": "Stages as_fx_pass from_fx_pass lower lower_stages pipeline_stage sum_tied_gradients to_fx to_script",
    "lowering.training": "training_module",
    "report": "report",
    "stats": "stats tree",
    "transforms": (
        "DEFAULT Fuel Match Rewrite Rule RuleSet Transformation any_of bisect bodies_to_regions "
        "deduplicate dispatch eliminate_common_subexpressions eliminate_dead_code "
        "expand fold_constants functionalize infer inline inplace_mutations insert_ivals join lift_constants lift_state "
        "minimize module move_non_tensor_nodes name_inputs normalize_stacks observe outline "
        "regions_to_bodies relay_skips remove_effect_tokens remove_noops restore_names rule sink_state split_balanced "
        "split_by_module split_by_tags swap_modules through to_device to_dtype transform transformation"
    ),
}

HOMES = {name: f"purefx.{home}" for home, names in _NAMES.items() for name in names.split()}
"""The module of each public name."""


class Front(ModuleType):
    """The class of the package: its ``__getattr__`` imports missing names."""

    def __getattr__(self, name: str) -> Any:
        if name in HOMES:
            found = getattr(importlib.import_module(HOMES[name]), name)
        elif name == "__version__":
            found = importlib.import_module("importlib.metadata").version("purefx")
        elif name in DOORS:
            found = importlib.import_module(f"purefx.{name}")
        else:
            raise AttributeError(f"module 'purefx' has no attribute {name!r}", name=name, obj=self)
        self.__dict__[name] = found
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        # Python sets submodules as attributes of the package, also ``purefx.stats``; but that name is the function.
        if name not in HOMES or not isinstance(value, ModuleType):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *HOMES, *DOORS})
