"""``LoweredModule``: a real ``torch.fx.GraphModule`` that runs generated code and builds its graph when looked at.

One idea: what fx makes eagerly and once per module (a graph, its code, a class) is made on demand; the function that
runs is shared by all modules with the same body.  ``graph``, ``code`` and ``recompile`` behave as fx's: an edited
graph takes effect at ``recompile()``, in this module alone.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.fx
from torch.export.unflatten import UnflattenedModule

from ..ir.torch_private import blank_module, codegen_of
from .compiled import Body
from .family import Family
from .fx_names import uncompilable
from .fx_view import View, build_fx_graph
from .lowered import DERIVED, Lowered, copy_graph
from .original import as_it_was
from .preserved import edited

__all__ = ["LAZY", "LoweredModule", "Place", "holds", "make_class", "new_module"]


class Place:
    """Where a lowered module stands: its body, its path and the number of the call that it answers."""

    __slots__ = ("bodies", "body", "call", "path", "type_name")

    def __init__(self, body: Body, path: str, call: int, type_name: str | None, bodies: Family) -> None:
        self.body = body
        self.path = path
        self.call = call
        self.type_name = type_name
        self.bodies = bodies
        """The modules of nested graphs, by graph id, and what else all modules of a lowering share."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Place:
        return self

    def fx_graph(self, owner: torch.nn.Module) -> torch.fx.Graph:
        """Return a new fx graph of the body, owned by the module."""

        def attach(name: str) -> str:
            attribute = "".join(char if char.isalnum() or char == "_" else "_" for char in name).strip("_") or "body"
            while attribute in RESERVED or owner.__dict__.get(attribute, self.bodies[name]) is not self.bodies[name]:
                attribute += "_"
            owner.__dict__[attribute] = self.bodies[name]
            return attribute

        def attach_tree(spec: Any) -> str:
            number = 0
            while owner.__dict__.get(f"_spec_{number}", spec) != spec:
                number += 1
            owner.__dict__[f"_spec_{number}"] = spec
            return f"_spec_{number}"

        body = self.body
        is_root = body.name == body.program.root
        graph, convention, sites = body.graph, body.convention, body.sites
        was = self.bodies.before_merging(self.path, self.call)
        callees = self.bodies.callees_before(was) if was is not None else {}
        graph = as_it_was(graph, was)
        view = View(
            body.program, graph, self.path, self.call, attach, attach_tree, is_root, self.bodies.types, convention, sites, callees
        )  # fmt: skip
        return build_fx_graph(view)


def _fx_attributes(module: LoweredModule) -> dict[str, Any]:
    graph = module.purefx_place.fx_graph(module)
    graph.owning_module = cast(Any, module)
    made: dict[str, Any] = {"_graph": graph, "_tracer_cls": None, "_tracer_extras": {}, "shape_env": None}
    codegen: Any = codegen_of(graph)
    if hasattr(codegen, "pytree_info"):
        made |= {"_in_spec": codegen.pytree_info.in_spec, "_out_spec": codegen.pytree_info.out_spec}
    return made


def _graph_of_ones_own(module: LoweredModule) -> torch.fx.Graph:
    # While fx generates code, the nodes of the graph print themselves by the names of that code, so no other thread may see them.
    if "_graph" in module.__dict__:
        return copy_graph(module.__dict__["_graph"])
    made = _fx_attributes(module)
    for key in made.keys() - {"_graph"}:
        module.__dict__.setdefault(key, made[key])
    return cast(torch.fx.Graph, made["_graph"])


LAZY = frozenset(
    {
        "_graph", "_tracer_cls", "_tracer_extras", "shape_env", "_in_spec", "_out_spec", "meta", "_replace_hooks",
        "_create_node_hooks", "_erase_node_hooks", "_deepcopy_hooks", "_lineno_map",
    }
)  # fmt: skip
"""Attributes of a GraphModule that are made when they are first read."""


class LoweredModule(Lowered, torch.fx.GraphModule):
    """A module made by ``lower``; see the file's docstring."""

    def __new__(cls, *_: Any, **__: Any) -> LoweredModule:
        """Make an instance of this very class: GraphModule makes one for each instance, ours has one for each body."""
        return cast(LoweredModule, object.__new__(cls))

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)

    def __getattr__(self, name: str) -> Any:
        if holds(self, name) and name not in _FX:
            return torch.nn.Module.__getattr__(self, name)  # a child called ``meta``: as in eager
        if name in LAZY:
            made = _fx_attributes(self) if name in _FX else {name: {} if name in _DICTS else []}
            for key, value in made.items():
                self.__dict__.setdefault(key, value)
            if name in self.__dict__:
                return self.__dict__[name]
        if name == "_code":
            return self.code  # str(module) reads it
        if name == "graph_module":
            return self  # where an InterpreterModule has it
        if name == "arg_names":
            return [formal.name for formal in self.purefx_place.body.graph.inputs]
        return torch.nn.Module.__getattr__(self, name)

    @property
    def code(self) -> str:
        """The code that fx generates for the graph; what runs is equivalent and leaner."""
        if "_code" not in self.__dict__:
            graph = _graph_of_ones_own(self)
            self.__dict__.setdefault("_code", graph.python_code(root_module="self").src)
            self.__dict__.setdefault("_graph", graph)
        return cast(str, self.__dict__["_code"])

    def recompile(self) -> Any:
        """Make the (edited) graph take effect, for this module alone.

        Raises:
            UnsupportedProgram: fx writes a name of the graph into Python text where it can not stand.
        """
        if "purefx_own_class" not in type(self).__dict__:
            name = type(self).__name__
            cast(Any, self).__class__ = type(name, (type(self),), {"purefx_own_class": True})
        try:
            code = super().recompile()
        except SyntaxError as error:
            raise uncompilable(self._graph, error) from None
        answers = self.__dict__.get("purefx_answers")
        if answers is not None:
            cast(Any, type(self)).forward = edited(cast(Any, type(self)).forward, answers)
        return code

    def _recompile_submodules(self) -> list[tuple[str, Any]]:
        # A child whose graph nobody looked at runs what it should; fx would generate code for all of them.
        looked_at = [(name, child) for name, child in self.named_children() if "_graph" in child.__dict__]
        return [(name, child.recompile()) for name, child in looked_at if isinstance(child, torch.fx.GraphModule)]

    def finalize(self) -> None:
        """Make the (edited) graph take effect: what users of an InterpreterModule call."""
        self.graph.lint()
        self.recompile()

    def extra_repr(self) -> str:
        """Return the class name of the original module, for ``repr``."""
        return self.purefx_place.type_name or ""


def holds(module: torch.nn.Module, name: str) -> bool:
    """Say whether a module has a child or state of a name."""
    attributes = module.__dict__
    return any(name in attributes.get(kind, ()) for kind in ("_modules", "_parameters", "_buffers"))


_DICTS = frozenset({"meta", "_lineno_map"})
"""Of those, the ones that start as an empty dict; no map of lines tells dynamo that fx's code is not what runs."""

ROOT_ATTRIBUTES = frozenset(
    {
        "graph", "graph_signature", "equality_constraints", "input_placeholders", "check_input_constraints",
        "flat_args_adapter", "adapted", "ivals", "purefx_plan", "purefx_codes",
    }
)  # fmt: skip
"""Attributes that roots have besides."""

_FX = frozenset({"_graph", "_tracer_cls", "_tracer_extras", "shape_env", "_in_spec", "_out_spec"})

RESERVED = (
    frozenset(dir(LoweredModule))
    | frozenset(dir(UnflattenedModule))
    | DERIVED
    | ROOT_ATTRIBUTES
    | frozenset(torch.nn.Module().__dict__)
    | LAZY
    | {"purefx_place", "purefx_answers", "graph_module", "arg_names", "call_modules"}
)
"""Attribute names that modules use themselves; state and children may have them too, in the module's dicts."""


def make_class(base: type[torch.nn.Module], members: dict[str, Any]) -> type[torch.nn.Module]:
    """Return a subclass for one distinct body, named like its base."""
    return type(base.__name__, (base,), {"__module__": base.__module__, "__doc__": base.__doc__, **members})


def new_module(kind: type[torch.nn.Module], place: Place) -> torch.nn.Module:
    """Return a module of a class made by ``make_class``, without children or state."""
    return blank_module(kind, purefx_place=place)
