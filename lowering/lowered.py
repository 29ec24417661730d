"""``Lowered``: what all modules made by ``lower`` share, whichever way they run.

One idea: copying, pickling, converting and switching modes work on the module's own dicts, as for any module; what was made
from the program is shared by copies and made again when a module is loaded.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.fx

from ..ir.paths import FROM_ROOT
from ..ir.torch_private import codegen_of, hooks_of, pytree, with_hooks_of
from .conversion import Once, convert_constants, restore_ties, tied_parameters
from .family import Family
from .modes import warn_of_modes
from .watched import Watched, Where

if TYPE_CHECKING:
    from .module import Place

__all__ = ["DERIVED", "FIRST", "OURS", "LaterCall", "Lowered", "copy_graph", "plain_class"]

OURS = "purefx_"
"""How the attributes begin that come from the program; copies share them."""

DERIVED = frozenset({"_in_spec", "_out_spec", "_code", "graph_module", "module_call_graph", "range_constraints", "_lineno_map"})
"""Attributes that are made again from others when they are next read."""


class Lowered(Watched):
    """A module made by ``lower``; see the file's docstring."""

    purefx_place: Place

    @property
    def purefx_family(self) -> Family:
        """What this module shares with the others of its lowering."""
        return self.purefx_place.bodies

    @property
    def purefx_where(self) -> Where | None:
        """Which lowering it is of, and where."""
        return Where(self.purefx_place.bodies, self.purefx_place.path)

    def type_name(self) -> str | None:
        """Return the class name of the original module."""
        return self.purefx_place.type_name

    def train(self, mode: bool = True) -> Any:  # noqa: FBT001, FBT002  torch's signature
        """Set the mode; warns, once, where a mode was written into the program."""
        warn_of_modes(self.purefx_family, self, train=mode)
        torch.nn.Module().train(mode)  # refuses what is no mode
        for module in _inside_out(self, "train"):
            if module is not self and not _plain(module, "train"):
                module.train(mode)
                continue
            if isinstance(module, Lowered) and module.purefx_family is not self.purefx_family:
                warn_of_modes(module.purefx_family, module, train=mode)
            module.training = mode
        return self

    def eval(self) -> Any:
        """Set the mode to evaluation; warns, once, where a mode was written into the program."""
        return self.train(False)  # noqa: FBT003  torch's signature

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002
        ties = [] if isinstance(fn, Once) else tied_parameters(self)
        convert = Once.of(fn)
        for module in _inside_out(self, "_apply") if recurse else [self]:
            if module is not self and not _plain(module, "_apply"):
                cast(Any, module)._apply(convert)
                continue
            torch.nn.Module._apply(module, convert, recurse=False)  # pyright: ignore[reportPrivateUsage]
            _convert_constants(module, convert)
        restore_ties(ties)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Lowered:
        new: Any = object.__new__(plain_class(type(self)))
        memo[id(self)] = new
        attributes = self.__dict__.copy()  # another thread may look at the module, and what it reads first is made then
        for key, value in attributes.items():
            if key not in DERIVED and key not in GRAPHS:
                shared = isinstance(value, pytree.TreeSpec) or (key.startswith(OURS) and key != "purefx_plan")
                new.__dict__[key] = value if shared else copy.deepcopy(value, memo)
        for key in GRAPHS & attributes.keys():
            if isinstance(attributes[key], torch.fx.Graph):
                new.__dict__[key] = graph = copy_graph(attributes[key])
                graph.owning_module = new
            else:
                new.__dict__[key] = copy.deepcopy(attributes[key], memo)  # a constant of that name
        if "_graph" in attributes and plain_class(type(self)) is not type(self):
            new.recompile()
        return new

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return cast(tuple[Any, ...], Family.reduce_module(self))


FIRST = "@"
"""Under which attribute the body of a later call of a module has the module."""


class LaterCall(Lowered):
    """The body of a later call of a module, which differs from the first: the hooks of the module run for this call too."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the body as the module is called."""
        module: torch.nn.Module = self.__dict__[FIRST]
        if not hooks_of(module):
            return super().__call__(*args, **kwargs)
        return super(LaterCall, with_hooks_of(self, module)).__call__(*args, **kwargs)


class OtherName(LaterCall):
    """A module under another of its names, where its calls run other bodies: a hook on either name is one of the module."""

    def _hooked(self) -> torch.nn.Module:
        super()._hooked()
        return cast(torch.nn.Module, self.__dict__[FIRST])


GRAPHS = frozenset({"graph", "_graph"})
"""Where the two kinds of modules keep a graph that somebody looked at."""


def plain_class(kind: type[Any]) -> type[Any]:
    """Return the class that ``lower`` gave a module whose graph was edited, or any other's own."""
    return kind.__mro__[1] if "purefx_own_class" in kind.__dict__ else kind


def copy_graph(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Return a copy of a graph, with the same names and the same way to call it."""
    # Graph.__deepcopy__ copies pytree specs as well, and torch warns of that.
    new = torch.fx.Graph()
    output = new.graph_copy(graph, {}, return_output_node=True)
    if isinstance(output, tuple):
        value, old = output
        new.output(value).meta = dict(cast(torch.fx.Node, old).meta)
    new.set_codegen(codegen_of(graph))
    return new


def _plain(module: torch.nn.Module, method: str) -> bool:
    # Whether a method does with a module and its children what ours does.
    known = getattr(Lowered, method), getattr(torch.nn.Module, method)
    return method not in module.__dict__ and getattr(type(module), method) in known


def _inside_out(module: torch.nn.Module, method: str) -> list[torch.nn.Module]:
    # The modules that a method goes to, children first, as torch does; in a list, since calls inside calls end at the depth that
    # Python allows.  What has a method of its own goes on by itself.
    found: dict[int, torch.nn.Module] = {}
    todo = [module]
    while todo:
        each = todo.pop()
        if id(each) not in found:
            found[id(each)] = each
            if each is module or _plain(each, method):
                todo += each.children()
    return list(found.values())[::-1]


def _convert_constants(module: torch.nn.Module, convert: Once) -> None:
    # Those of a module of ours, of containers that were never called, and of later calls of the children.
    where = module.purefx_where if isinstance(module, Watched) else None
    constants = where.family.constants if where is not None else None
    if not constants or where is None:
        return
    convert_constants(module, constants.get(where.path, ()), convert)
    for name, value in list(module.__dict__.items()):
        if (
            name not in (FROM_ROOT, FIRST)
            and isinstance(value, Lowered)
            and value.__dict__.get("_modules") is not None
            and value.purefx_family is where.family
        ):
            convert_constants(value, constants.get(value.purefx_place.path, ()), convert)
