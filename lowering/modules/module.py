"""``Lowered`` and ``LoweredModule``: a real ``torch.fx.GraphModule`` that runs generated code and builds its graph on demand.

Copying, pickling and converting work on the module's own dicts; copies share everything that belongs to the program.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.fx
from attrs import define
from torch.export.unflatten import UnflattenedModule

from ...ir.effects.registered import effects_of
from ...ir.graph import Uncopied
from ...ir.names import join
from ...ir.program import Program
from ...ir.state import is_plain
from ...ir.state_changes import copy_value
from ...ir.torch_private import (
    blank_module,
    children_dict,
    codegen_of,
    hooks_of,
    pytree,
    with_hooks_of,
)
from ..calls.preserved import edited
from ..code.compiled import Body, may_leave_modes, restoring
from ..code.fx_view import build_fx_graph
from ..code.source import uncompilable
from ..swaps.hooks import Watched, Where
from .context import FIRST, LoweringContext
from .conversion import Once, convert_constants, restore_ties, tied_parameters, warn_of_modes

OURS = "purefx_"
"""The prefix of attributes that belong to the program; copies share them."""

MADE = "purefx_made"
"""An attribute in the dict of each class that ``lower`` makes."""

DERIVED = frozenset({"_in_spec", "_out_spec", "_code", "graph_module", "_lineno_map"})
"""Attributes that are recomputed when they are next read."""


class Lowered(Watched):
    """Base class of the modules that ``lower`` makes."""

    purefx_place: Place

    @property
    def purefx_context(self) -> LoweringContext:
        """The data shared by all modules of the lowering."""
        return self.purefx_place.context

    @property
    def purefx_path(self) -> str:
        """The path from the root of the tree; ``import_fx`` reads it."""
        return self.purefx_place.path

    @property
    def purefx_repacks(self) -> bool:
        """Whether its call signature was preserved: it packs and unpacks pytrees around its graph."""
        return "purefx_handlers" in self.__dict__

    @property
    def purefx_where(self) -> Where | None:
        """The lowering, and the path in it."""
        return Where(self.purefx_place.context, self.purefx_place.path)

    def type_name(self) -> str | None:
        """Return the class name of the original module."""
        return self.purefx_place.type_name

    def train(self, mode: bool = True) -> Any:  # noqa: FBT001, FBT002  torch's signature
        """Set the mode; warn once if modes are baked into the program."""
        if isinstance(mode, bool):  # torch raises for anything else
            warn_of_modes(self.purefx_context, self, train=mode)
        return super().train(mode)

    def eval(self) -> Any:
        """Set the mode to evaluation; warn once if modes are baked into the program."""
        return self.train(False)  # noqa: FBT003  torch's signature

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Any:  # noqa: FBT001, FBT002
        if isinstance(fn, Once):
            return super()._apply(fn, recurse)
        ties, convert = tied_parameters(self), Once(fn)
        super()._apply(convert, recurse)
        for part in self.modules() if recurse else (self,):
            where = (
                part.purefx_where if isinstance(part, Watched) else None
            )  # uncalled containers may have constants too
            if where is not None:
                convert_constants(part, where.context.names.constants.get(where.path, ()), convert)
        restore_ties(ties)
        return self

    def __copy__(self) -> Lowered:
        # As of an eager module: both have one dict of parameters and one of children.  GraphModule's copy checks no arguments.
        new: Any = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        return new

    def __deepcopy__(self, memo: dict[int, Any]) -> Lowered:
        new: Any = object.__new__(plain_class(type(self)))
        memo[id(self)] = new
        attributes = self.__dict__.copy()  # another thread may create attributes by reading them
        for name, value in own_state(self):
            if not is_plain(value):
                copy_value(name, value, memo)  # torch copies these to another type, or not at all
        for key, value in attributes.items():
            if key not in DERIVED and key not in GRAPHS:
                shared = isinstance(value, pytree.TreeSpec) or (
                    key.startswith(OURS) and key != "purefx_plan"
                )
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
        return cast(tuple[Any, ...], LoweringContext.reduce_module(self))


def own_state(module: Any) -> list[tuple[str, Any]]:
    """Return the parameters, buffers and constants of a lowered module without its children, by full name."""
    path, attributes = module.purefx_place.path, module.__dict__
    constants = [
        (name, attributes[name])
        for name in module.purefx_context.names.constants.get(path, ())
        if name in attributes
    ]
    found = [*attributes["_parameters"].items(), *attributes["_buffers"].items(), *constants]
    return [(join(path, name), value) for name, value in found if value is not None]


class Bound(Lowered):
    """A body that runs on another module: reads and writes of attributes go to that module."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if FIRST not in self.__dict__:
                raise
            return getattr(self.__dict__[FIRST], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if self._is_own(name) or isinstance(value, torch.nn.Module | Program):
            super().__setattr__(name, value)
        else:
            setattr(self.__dict__[FIRST], name, value)

    def __delattr__(self, name: str) -> None:
        if self._is_own(name):
            super().__delattr__(name)
        else:
            delattr(self.__dict__[FIRST], name)

    def _is_own(self, name: str) -> bool:
        return FIRST not in self.__dict__ or name in RESERVED or name in children_dict(self)


class LaterCall(Bound):
    """A later call of a module, with a different body than the first; it has the hooks of the module."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the body with the hooks of the module."""
        module = self._first()
        if not hooks_of(module):
            return super().__call__(*args, **kwargs)
        return super(LaterCall, with_hooks_of(self, module)).__call__(*args, **kwargs)

    def _hooked(self) -> torch.nn.Module:
        super()._hooked()
        return self._first()

    def _first(self) -> torch.nn.Module:
        module: torch.nn.Module = self.__dict__[FIRST]
        return module._first() if isinstance(module, OtherName) else module


class OtherName(LaterCall):
    """A module under another name, where it and its children run other bodies."""


def runs_on(module: torch.nn.Module) -> torch.nn.Module:
    """Return the module whose state and children the body of a module reads."""
    return module if isinstance(module, OtherName) else module.__dict__.get(FIRST, module)


GRAPHS = frozenset({"graph", "_graph"})
"""The attributes of the two kinds of modules for a graph that was accessed."""


def plain_class(kind: type[Any]) -> type[Any]:
    """Return the class that ``lower`` made, also for a module with an edited graph."""
    return kind.__mro__[1] if "purefx_own_class" in kind.__dict__ else kind


def copy_graph(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Return a copy of a graph, with the same names and codegen."""
    # Graph.__deepcopy__ copies pytree specs too, which makes torch warn.
    new = torch.fx.Graph()
    output = new.graph_copy(graph, {}, return_output_node=True)
    if isinstance(output, tuple):
        value, old = output
        new.output(value).meta = dict(cast(torch.fx.Node, old).meta)
    new.set_codegen(codegen_of(graph))
    return new


@define(eq=False)
class Place(Uncopied):
    """The instance of a lowered module: its body, path and call number."""

    body: Body
    path: str
    call: int
    type_name: str | None
    context: LoweringContext
    """The data shared by all modules of the lowering."""

    def fx_graph(self, owner: torch.nn.Module) -> torch.fx.Graph:
        """Return a new fx graph of the body, owned by the module."""
        return build_fx_graph(self, owner, RESERVED)


def _fx_attributes(module: LoweredModule) -> dict[str, Any]:
    graph = module.purefx_place.fx_graph(module)
    graph.owning_module = cast(Any, module)
    made: dict[str, Any] = {
        "_graph": graph,
        "_tracer_cls": None,
        "_tracer_extras": {},
        "shape_env": None,
    }
    codegen: Any = codegen_of(graph)
    if hasattr(codegen, "pytree_info"):
        made |= {"_in_spec": codegen.pytree_info.in_spec, "_out_spec": codegen.pytree_info.out_spec}
    return made


def _private_graph(module: LoweredModule) -> torch.fx.Graph:
    # While fx generates code, the nodes of the graph print with the names of that code, so no other thread may use the graph.
    if "_graph" in module.__dict__:
        return copy_graph(module.__dict__["_graph"])
    made = _fx_attributes(module)
    for key in made.keys() - {"_graph"}:
        module.__dict__.setdefault(key, made[key])
    return cast(torch.fx.Graph, made["_graph"])


_FX = frozenset({"_graph", "_tracer_cls", "_tracer_extras", "shape_env", "_in_spec", "_out_spec"})

LAZY = _FX | {
    "meta",
    "_replace_hooks",
    "_create_node_hooks",
    "_erase_node_hooks",
    "_deepcopy_hooks",
    "_lineno_map",
}
"""Attributes of a GraphModule that are created when they are first read."""


class LoweredModule(Lowered, torch.fx.GraphModule):
    """A module of a program lowered to graph modules; see the file's docstring."""

    def __new__(cls, *_: Any, **__: Any) -> LoweredModule:
        """Make an instance of this class, which belongs to a body; GraphModule makes a class for each instance."""
        return cast(LoweredModule, object.__new__(cls))

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def __getattr__(self, name: str) -> Any:
        if holds(self, name) and name not in _FX:
            return torch.nn.Module.__getattr__(
                self, name
            )  # a child called ``meta``: as in eager mode
        if name in LAZY:
            made = _fx_attributes(self) if name in _FX else {name: {} if name in _DICTS else []}
            for key, value in made.items():
                self.__dict__.setdefault(key, value)
            if name in self.__dict__:
                return self.__dict__[name]
        if name == "_code":
            return self.code  # str(module) reads it
        if name == "graph_module":
            return self  # as in InterpreterModule
        if name == "arg_names":
            return self.purefx_place.body.graph.input_names
        return torch.nn.Module.__getattr__(self, name)

    @property
    def code(self) -> str:
        """The code that fx generates for the graph; the code that runs is equivalent and faster."""
        if "_code" not in self.__dict__:
            graph = _private_graph(self)
            self.__dict__.setdefault("_code", graph.python_code(root_module="self").src)
            self.__dict__.setdefault("_graph", graph)
        return cast(str, self.__dict__["_code"])

    def recompile(self) -> Any:
        """Apply edits of the graph, to this module alone.

        Raises:
            UnsupportedProgram: a name in the graph is a Python keyword.
        """
        if "purefx_own_class" not in type(self).__dict__:
            name = type(self).__name__
            cast(Any, self).__class__ = type(name, (type(self),), {"purefx_own_class": True})
        try:
            code = super().recompile()
        except SyntaxError as error:
            raise uncompilable(self._graph, error) from None
        nodes = list(self._graph.nodes)
        if any(
            node.op == "call_function"
            and may_leave_modes(node.target, unknown=effects_of(node.target).unknown)
            for node in nodes
        ):
            names = [node.name for node in reversed(nodes)]
            cast(Any, type(self)).forward = restoring(
                type(self).forward, "self, *args, **kwargs", lambda: names
            )
        handlers = self.__dict__.get("purefx_handlers")
        if handlers is not None:
            cast(Any, type(self)).forward = edited(cast(Any, type(self)).forward, handlers)
        return code

    def _recompile_submodules(self) -> list[tuple[str, Any]]:
        # Children whose graphs were never accessed run their own code; fx would generate code for all of them.
        accessed = [
            (name, child) for name, child in self.named_children() if "_graph" in child.__dict__
        ]
        return [
            (name, child.recompile())
            for name, child in accessed
            if isinstance(child, torch.fx.GraphModule)
        ]

    def finalize(self) -> None:
        """Apply edits of the graph, as in ``InterpreterModule``."""
        self.graph.lint()
        self.recompile()

    def extra_repr(self) -> str:
        """Return the class name of the original module, for ``repr``."""
        return self.purefx_place.type_name or ""


def holds(module: torch.nn.Module, name: str) -> bool:
    """Return whether a module has a child or state with a name."""
    return any(
        name in module.__dict__.get(kind, ()) for kind in ("_modules", "_parameters", "_buffers")
    )


_DICTS = frozenset({"meta", "_lineno_map"})
"""The lazy attributes that start as an empty dict; without a line map, dynamo does not assume that fx's code runs."""

ROOT_ATTRIBUTES = frozenset(
    {
        "graph", "input_placeholders", "check_input_constraints",
        "flat_args_adapter", "adapted", "ivals", "purefx_plan", "purefx_codes",
    }
)  # fmt: skip
"""Further attributes of roots."""

RESERVED = (
    frozenset(dir(LoweredModule))
    | frozenset(dir(UnflattenedModule))
    | DERIVED
    | ROOT_ATTRIBUTES
    | frozenset(torch.nn.Module().__dict__)
    | LAZY
    | {"purefx_place", "purefx_handlers", "arg_names", "_prologue_start"}
)
"""Attribute names that modules use themselves; state and children with these names are in the module's dicts."""


def make_class(base: type[torch.nn.Module], members: dict[str, Any]) -> type[torch.nn.Module]:
    """Return a subclass of the same name for one distinct body."""
    return type(
        base.__name__,
        (base,),
        {"__module__": base.__module__, "__doc__": base.__doc__, MADE: True, **members},
    )


def new_module(kind: type[torch.nn.Module], place: Place) -> torch.nn.Module:
    """Return a module of a class from ``make_class``, without children or state."""
    return blank_module(kind, purefx_place=place)
