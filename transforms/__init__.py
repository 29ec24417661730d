"""Pure functions ``Program -> Program``.  Import them as ``purefx.transforms``.

A transformation is a frozen callable value; if nothing changes, it returns its argument itself.  No transformation runs a
program or builds a torch module.
"""

from __future__ import annotations

from .cleanup import infer, lift_constants, name_inputs, normalize_stacks, restore_names
from .convert import to_device, to_dtype
from .deduplicate import deduplicate
from .dispatch import dispatch
from .effect_tokens import remove_effect_tokens
from .expand import expand
from .inline import inline
from .insert_ivals import insert_ivals
from .minimize import Minimized, minimize
from .modes import bodies_to_regions, regions_to_bodies
from .mutations import functionalize, inplace_mutations
from .observe import observe
from .outline import outline
from .partition import (
    join,
    move_non_tensor_nodes,
    relay_skips,
    split_balanced,
    split_by_module,
    split_by_tags,
)
from .pipeline import DEFAULT, Rewrite, bisect, transform
from .rules import Match, Rule, RuleSet, any_of, module, rule, through
from .simplify import (
    eliminate_common_subexpressions,
    eliminate_dead_code,
    fold_constants,
    remove_noops,
)
from .state import lift_state, sink_state
from .swap import swap_modules
from .transformation import Fuel, Transformation, transformation

__all__ = [
    "DEFAULT", "Fuel", "Match", "Minimized", "Rewrite", "Rule", "RuleSet", "Transformation",
    "any_of", "bisect", "bodies_to_regions", "deduplicate", "dispatch",
    "eliminate_common_subexpressions", "eliminate_dead_code", "expand", "fold_constants", "functionalize", "infer",
    "inline", "inplace_mutations", "insert_ivals", "join", "lift_constants", "lift_state",
    "minimize", "module", "move_non_tensor_nodes", "name_inputs", "normalize_stacks", "observe", "outline", "regions_to_bodies",
    "relay_skips", "remove_effect_tokens", "remove_noops", "restore_names", "rule", "sink_state", "split_balanced",
    "split_by_module", "split_by_tags", "swap_modules", "through", "to_device", "to_dtype", "transform", "transformation",
]  # fmt: skip
