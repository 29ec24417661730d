"""Programs that are imported from parts of lowered trees: each is a program of its part.

A generated module is exported, transformed at random, perhaps split, and lowered.  A random part of
the tree is imported again, transformed at random, lowered, compared with the part when it runs, and
put back into the tree.
"""

from __future__ import annotations

import copy
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from attrs import field, frozen
from torch.nn.modules.module import register_module_forward_pre_hook

import purefx as px
from purefx.ir.calls.call_graph import instances
from purefx.ir.calls.parts import part_names
from purefx.ir.names import is_below, join
from purefx.ir.own_operators import tensors_of
from purefx.ir.torch_private import pytree
from purefx.laws import behaviour_differences
from purefx.laws.oracles import Calls
from purefx.laws.purity import seeded
from purefx.laws.strategies import ModuleTree

Step = Callable[[px.Program], px.Program]


def default(program: px.Program) -> px.Program:
    """Return the tree of the default pipeline."""
    return px.transform(program)


def in_two(program: px.Program) -> px.Program:
    """Return the program in two parts."""
    return px.split_balanced(program, 2)


def by_children(program: px.Program) -> px.Program:
    """Return the program with a part for each second child of the root."""
    children = [one.path for one in program.modules if one.path and "." not in one.path]
    return px.split_by_module(program, dict.fromkeys(children[1::2], "second"))


def partly_outlined(program: px.Program) -> px.Program:
    """Return the program with two bodies, and stacks beside their calls."""
    return px.outline(px.sink_state(program), fuel=2)


BEFORE: dict[str, tuple[Step, ...]] = {
    "tree": (default,),
    "in two": (default, in_two),
    "by children": (default, by_children),
    "partly outlined": (partly_outlined,),
    "not deduplicated": (px.sink_state, px.outline),
    "expanded": (default, px.expand),
    "in two, expanded": (default, in_two, px.expand, px.deduplicate),
    "state as inputs": (px.outline,),
    "inferred": (px.infer, px.outline),
    "inlined parts": (default, in_two, px.inline, px.outline),
}
"""Pipelines before the tree is lowered."""

AFTER: tuple[Step, ...] = (
    default,
    px.sink_state,
    px.lift_state,
    px.outline,
    px.inline,
    px.expand,
    px.deduplicate,
    px.insert_ivals,
    px.infer,
    px.functionalize,
    px.inplace_mutations,
    px.remove_effect_tokens,
    px.dispatch,
    px.normalize_stacks,
    px.eliminate_dead_code,
    px.eliminate_common_subexpressions,
    px.remove_noops,
    px.fold_constants,
    px.lift_constants,
    px.name_inputs,
    px.move_non_tensor_nodes,
    px.relay_skips,
    px.join,
    px.regions_to_bodies,
    px.bodies_to_regions,
    in_two,
    by_children,
    partly_outlined,
)
"""Transformations of the program of a part; each keeps every result bit by bit."""


@frozen
class Part:
    """A part of a lowered tree, with the arguments of its calls during one call of the tree."""

    tree: Any = field(repr=False)
    path: str
    module: Any = field(repr=False)
    calls: Calls = field(repr=False)
    call: Any = field(repr=False)
    """The arguments of the tree."""
    program: px.Program = field(repr=False)
    """The program of the tree."""

    @property
    def is_alone(self) -> bool:
        """Whether nothing else in the tree has its state, its name or its inner modules, or calls these."""
        if "@" in self.path or self._is_entered:
            return False
        above, _, name = self.path.rpartition(".")
        inside = {id(tensor) for tensor in tensors_of(self.module)}
        inside |= {id(module) for module in self.module.modules()}
        for path, module in self.tree.named_modules(remove_duplicate=False):
            if path == self.path or is_below(path, self.path):
                continue
            own = [*module.parameters(recurse=False), *module.buffers(recurse=False), module]
            if not inside.isdisjoint(map(id, own)):
                return False
        beside = vars(self.tree.get_submodule(above))
        return not any(other.startswith(f"{name}@") for other in beside)

    @property
    def _is_entered(self) -> bool:
        # Whether a module outside of it calls a module below it.
        for graph, caller in instances(self.program):
            if caller == self.path or is_below(caller, self.path):
                continue
            for node in self.program.graphs[graph].callers:
                if type(node.do) is px.Call and is_below(
                    join(caller, node.do.instance.path), self.path
                ):
                    return True
        return False


def exported_program(tree: ModuleTree, draw: random.Random) -> px.Program | None:
    """Return a program of a generated module; None if the exporter refuses it or gets it wrong."""
    paths = [path for path, _ in tree.build().named_modules() if path]
    preserved = draw.sample(paths, min(2, len(paths))) if draw.random() < 0.2 else ()
    try:
        ep = tree.export(decomposed=draw.random() < 0.2, preserve=sorted(preserved))
        program = px.import_fx(ep.module()) if draw.random() < 0.3 else px.import_ep(ep)
    except Exception:
        return None
    return None if px.verify(program) else program


def applied(program: px.Program, steps: Sequence[Step]) -> tuple[px.Program, list[str]]:
    """Return the program after some steps, and what is wrong; a refused step changes nothing."""
    for number, step in enumerate(steps, 1):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", px.errors.FlatCallWarning)
                program = step(program)
        except px.PurefxError:
            continue
        except Exception as error:
            return program, [f"{named(steps[:number])}: {type(error).__name__}: {error}"]
        wrong = px.verify(program)
        if wrong:
            return program, [f"{named(steps[:number])}: {wrong[0]}"]
    return program, []


def named(steps: Sequence[Step]) -> str:
    """Return the names of some steps."""
    return ", ".join([getattr(step, "__name__", str(step)) for step in steps])


def parts_of(program: px.Program, call: Any) -> Iterator[Part]:
    """Yield the parts of a lowered program that one call runs."""
    tree = px.lower(program)
    calls: dict[int, list[Any]] = {}

    def note(module: Any, args: Any) -> None:
        if isinstance(module, torch.fx.GraphModule):
            calls.setdefault(_place(module), []).append((_copied(args), {}))

    args, kwargs = copy.deepcopy(call)
    noting = register_module_forward_pre_hook(note)
    try:
        with seeded(0), torch.no_grad():
            copy.deepcopy(tree)(*args, **kwargs)
    finally:
        noting.remove()
    for path, module in _modules_of(tree):
        if path and calls.get(_place(module)):
            yield Part(tree, path, module, calls[_place(module)], call, program)


def _copied(args: Any) -> Any:
    try:
        return copy.deepcopy(args)
    except (
        RuntimeError
    ):  # torch refuses to look at a view made under no_grad whose base was written
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.detach().clone(), args)


def _place(module: torch.nn.Module) -> int:
    return id(vars(module).get("purefx_place"))


def _modules_of(tree: torch.nn.Module) -> Iterator[tuple[str, torch.nn.Module]]:
    # Later calls with other bodies are beside the module.
    for path, module in tree.named_modules():
        yield path, module
        for name, value in vars(module).items():
            if "@" in name:
                yield join(path, name), value


def wrong_with(part: Part, steps: Sequence[Step], reached: set[str]) -> list[str]:
    """Return what is wrong with the program of a part, or with what transforms it.

    Args:
        part: the part.
        steps: the transformations.
        reached: gets what is hard about the part.
    """
    try:
        program = px.import_fx(part.module)
    except px.errors.UnsupportedProgram as error:
        known = [words for words in REFUSALS if words in str(error)]
        reached.update(known)
        return [] if known else [f"refused: {error}"]
    wrong = px.verify(program)
    if wrong:
        return [f"import_fx: {wrong[0]}"]
    reached.update(_hard(part, program))
    program, faults = applied(program, steps)
    if faults:
        return faults
    module = px.lower(program)
    found = behaviour_differences(module, part.module, part.calls)
    if part_names(program):
        found = [line for line in found if ", state" not in line]  # parts have other names
    if not found and part.is_alone:
        found = _put_back(part, program, reached)
    return [f"after {named(steps)}: {line}" for line in found]


REFUSALS = ("outside of the imported module", "call signature")
"""What a part may be refused for."""


def _hard(part: Part, program: px.Program) -> Iterator[str]:
    kinds = {type(node.do) for node in program.main.nodes}
    if "@" in part.path:
        yield "a later call"
    if px.Call in kinds:
        yield "calls"
    if any(node.stack for node in program.main.nodes):
        yield "calls and stacks" if px.Call in kinds else "stacks"
    if program.state.modules:
        yield "modules"


def _put_back(part: Part, program: px.Program, reached: set[str]) -> list[str]:
    found: list[str] = []
    for way in (_assigned, _swapped, _swapped_program):
        try:
            tree = way(part, program)
            differences = behaviour_differences(tree, part.tree, [part.call])
        except px.PurefxError:
            continue  # calls with a preserved signature pass and unpack pytrees
        reached.add(way.__name__)
        found += [f"{way.__name__}: {line}" for line in differences if ", state" not in line]
    return found


def _assigned(part: Part, program: px.Program) -> Any:
    tree = copy.deepcopy(part.tree)
    above, _, name = part.path.rpartition(".")
    setattr(tree.get_submodule(above), name, px.lower(program))
    return tree


def _swapped(part: Part, program: px.Program) -> Any:
    by = {part.path: px.lower(program)}
    return px.lower(px.transform(px.swap_modules(part.program, by, signature="flat")))


def _swapped_program(part: Part, program: px.Program) -> Any:
    by = {part.path: program}
    return px.lower(px.transform(px.swap_modules(part.program, by, signature="flat")))
