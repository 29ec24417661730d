"""The front for graphs of any tracer, with ``call_module``, ``call_method`` and reads of state.

Each graph module is read once for each of its roles: the root, the body of its calls, or a body that an operator takes.
The effects of a node come from its operator alone; those of an unknown operator are unknown.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import takewhile
from typing import Any

import torch
import torch.fx
from attrs import evolve

from ..analysis.numbers import SYMBOLIC
from ..arguments import Args, Kwargs, Record
from ..callables import Parameter, bind, class_name
from ..errors import InvalidProgram, UnsupportedProgram, Violation
from ..graph import Call, Frame, Get, Graph, Stack
from ..names import FROM_ROOT, Names, is_below, is_identifier, join, last_name, way_to
from ..operators import Declared
from ..own_operators import CALL_GUARDS, CALL_MODULE, attribute_of
from ..program import Module
from ..signature import RestType
from ..state import Slot, SlotKind, State
from ..tensors import TensorIds
from ..torch_private import (
    PyTreeCodeGen,
    checks_inputs,
    generator_of_code,
    hooks_of,
    unsaved_buffers,
)
from ..verify.calls import held_by
from ..verify.findings import short
from .reader import Front, GraphReader, Job, find, where
from .stacks import TracedStacks, stack_inside, traced_backward, with_backward_calls

PRESERVED = (
    "the call signature of this module was preserved, so it packs and unpacks pytrees around its "
    "graph; export the model without preserve_module_call_signature"
)

VALUES = (torch.Tensor, int, float, bool, complex, str, *SYMBOLIC, type(None))


class TracedFront(Front):
    """Reads the graphs of any tracer.

    Args:
        root: the root; it is not changed.
        values: fake values of nodes that have none in their meta.
        declared: the declared effects of operators of other libraries.
    """

    def __init__(
        self, root: torch.fx.GraphModule, values: Mapping[Any, Any], declared: Declared
    ) -> None:
        super().__init__(declared, origins=False)
        self.root = root
        self.values = values
        self.own = getattr(root, "purefx_path", "")
        """The path of the module in the tree that it is a part of, where its stacks begin."""
        self.attributes = Attributes(root)
        self.stacks = TracedStacks()
        self.traced = traced_backward(root.graph)
        self._names = Names([""])
        self._roles: dict[tuple[int, int, str], str] = {}
        for (
            fx_node
        ) in root.graph.nodes:  # collect the call numbers of the stacks before numbering a call
            self._stack(fx_node)
        self.last = self.stacks.last()
        """The last call of each module, by its path from the root, in stacks and bodies."""
        self.read(root)
        main = with_backward_calls(self.graphs[""], self.traced.backward)
        self.graphs[""] = _outside(main, self.attributes.held)

    def stack(self, at: GraphReader, fx_node: Any) -> Stack | None:
        """Return the module calls around a node of the root."""
        return None if at.job.name else self._stack(fx_node)

    def _stack(self, fx_node: Any) -> Stack | None:
        raw = self.traced.stacks.get(fx_node) or fx_node.meta.get("nn_module_stack")
        if self.own and raw:
            raw = stack_inside(raw, self.own)
        if fx_node.op != "call_module":
            return self.stacks.read(raw)
        if checks_inputs(getattr(self.root, str(fx_node.target), None)):
            return ()  # torch writes the stack of the first operator, but it checks the root's inputs
        return self.stacks.read(raw, below=fx_node.target)

    def meta(self, fx_node: Any) -> dict[str, Any]:
        """Return the meta from the tracer, with ``val`` where it is known, and ``tag``."""
        meta: dict[str, Any] = dict(fx_node.meta)
        if "val" not in meta and (value := self.value(fx_node)) is not None:
            meta["val"] = value
        if (tag := getattr(fx_node, "tag", None)) is not None:
            meta["tag"] = tag
        return meta

    def value(self, fx_node: Any) -> Any:
        """Return the fake value of a node from its tracer or an example; None if it is unknown."""
        for found in (
            fx_node.meta.get("val"),
            fx_node.meta.get("example_value"),
            self.values.get(fx_node),
        ):
            if found is not None and _is_value(found):
                return found
        return None

    def body(self, at: GraphReader, fx_node: Any, module: torch.fx.GraphModule, wanted: str) -> str:
        """Return the name of the graph of a module in one of its roles."""
        if repacks(module):
            raise UnsupportedProgram(f"it calls the module {fx_node.target!r}: {PRESERVED}")
        for user in fx_node.users:
            if (
                user.op != "call_function"
                or not self.operators.function(user.target).effects.through_bodies
            ):
                raise UnsupportedProgram(
                    f"{where(user)} uses the module {fx_node.target!r}, which can only be called"
                )
        return self._body(module, wanted, at.job.holder, _path(at.job, fx_node.target))

    def attribute(self, at: GraphReader, fx_node: Any, owner: torch.nn.Module, value: Any) -> Get:
        """Return a read of state."""
        if isinstance(value, torch.nn.Module):
            raise UnsupportedProgram(
                f"reads the module {fx_node.target!r}, which can only be called"
            )
        name = last_name(fx_node.target)
        if is_computed(owner, name):
            fault = f"{fx_node.target!r} is computed when it is read ({type(owner).__qualname__}.{name}), so it is not state"
            raise UnsupportedProgram(f"{fault}; remove the parametrization or the property first")
        path = self._path(at.job, fx_node.target, value)
        self.attributes.read(at.job.holder, path, value)
        return Get(path)

    def _path(self, job: Job, target: str, value: Any) -> str:
        # The path as the body of the module writes it.  Bodies of lowered modules reach others through
        # "/", the root of their tree.  The target is inside of the imported module only if that has
        # the same object there.
        if not target.startswith(f"{FROM_ROOT}."):
            return _path(job, target)
        path = target[2:]
        inner = path[len(self.own) + 1 :] if self.own else path
        if not is_below(path, self.own) or attribute_of(self.root, inner) is not value:
            what = "module" if isinstance(value, torch.nn.Module) else "state"
            raise UnsupportedProgram(
                f"uses the {what} {path!r}, which is outside of the imported module; "
                "import a module that contains both"
            )
        return f"{FROM_ROOT}{inner}" if job.name else inner

    def _body(
        self, module: torch.fx.GraphModule, wanted: str, holder: torch.nn.Module, prefix: str = ""
    ) -> str:
        # The graph itself is read later.
        key = (id(module), id(holder), prefix)
        name = self._roles.get(key)
        if name is None:
            name = self._roles[key] = self._names.fresh(wanted)
            self.todo.append(Job(name, module, holder, prefix))
        return name

    def call(self, at: GraphReader, fx_node: Any) -> None:
        """Add a call of a method or of a module."""
        args, kwargs = at.arguments(fx_node.args), at.keywords(fx_node.kwargs)
        if fx_node.op == "call_module":
            self._call_module(at, fx_node, args, kwargs)
        else:
            if not is_identifier(fx_node.target):
                raise at.invalid(
                    "names",
                    f"{short(fx_node.target)} cannot be the name of a method",
                    "rename it in the fx graph",
                )
            if not args:
                raise UnsupportedProgram(
                    "call_method needs the object as its first argument; this call has no arguments"
                )
            at.add(
                self.operators.method(fx_node.target, of_tensor=self._is_tensor(fx_node.args[0])),
                args,
                kwargs,
            )

    def _is_tensor(self, arg: Any) -> bool:
        return isinstance(arg, torch.fx.Node) and (
            isinstance(self.value(arg), torch.Tensor)
            or type(arg.meta.get("tensor_meta")).__name__ == "TensorMetadata"
        )

    def _call_module(
        self,
        at: GraphReader,
        fx_node: Any,
        args: Args,
        kwargs: Kwargs,
    ) -> None:
        # Call the body if the graph shows all effects of the module, else the module as it is.
        _, module = find(at.job.module, fx_node.target)
        if not isinstance(module, torch.nn.Module):
            raise UnsupportedProgram(f"{fx_node.target!r} is {short(module)}, not a module")
        path = self._path(at.job, fx_node.target, module)
        if not is_transparent(module):
            self.attributes.hold(at.job.holder, path, module)
            at.add(
                CALL_GUARDS if checks_inputs(module) else CALL_MODULE,
                (at.helper("module", Get(path)), *args),
                kwargs,
            )
            return
        assert isinstance(module, torch.fx.GraphModule)
        frame, home = self._place(at.job.holder, path, module)
        parameters = [
            evolve(one, default=tuple([at.argument(value) for value in one.default]))
            for one in parameters_of(module)
        ]
        values = bind(parameters, args, dict(kwargs))
        passed = tuple(
            [
                Record(tuple(value.items())) if type(value) is dict else value
                for value in values.values()
            ]
        )
        at.add(Call(frame, self._body(module, frame.path.lstrip("/"), home)), passed)

    def _place(
        self, holder: torch.nn.Module, path: str, module: torch.nn.Module
    ) -> tuple[Frame, torch.nn.Module]:
        # Lowered modules have the bodies of later calls of a module beside it, as "path@number".
        base, modules = path.partition("@")[0], self.attributes.modules
        places = [join(at, base) for at in self.attributes.paths.get(id(holder), ())] or [base]
        number = 1 + max([self.last.get(place, -1) for place in places])
        self.last.update(dict.fromkeys(places, number))
        real = next((place for place in places if place in modules), None)
        return Frame(base, number), module if real is None or base == path else modules[real]


def _path(job: Job, target: str) -> str:
    # The path as the holder of the module writes it.
    return target if target.startswith("/") else join(job.prefix, target)


def _outside(graph: Graph, held: Collection[str]) -> Graph:
    # A stack ends before a module that is called as it is: none of its nodes are in the graph.
    if not held:
        return graph
    stacks = [
        tuple(takewhile(lambda frame: not held_by(held, frame.path), node.stack))
        for node in graph.nodes
    ]
    pairs = zip(graph.nodes, stacks, strict=True)
    return graph.with_nodes(
        [node if node.stack == stack else node.evolve(stack=stack) for node, stack in pairs]
    )


def _is_value(value: Any) -> bool:
    return (
        all(map(_is_value, value)) if isinstance(value, tuple | list) else isinstance(value, VALUES)
    )


def is_transparent(module: torch.nn.Module) -> bool:
    """Return whether a call of a module runs its graph and nothing else.

    >>> is_transparent(torch.fx.symbolic_trace(torch.nn.ReLU())), is_transparent(torch.nn.ReLU())
    (True, False)
    """
    if (
        not isinstance(module, torch.fx.GraphModule)
        or hooks_of(module)
        or "forward" in module.__dict__
        or repacks(module)
    ):
        return False
    codegen = generator_of_code(module)
    return codegen is not None and not isinstance(codegen, PyTreeCodeGen)


def repacks(module: torch.nn.Module) -> bool:
    """Return whether a module was lowered with a preserved call signature.

    Such a module packs and unpacks pytrees around its graph.

    >>> repacks(torch.nn.ReLU())
    False
    """
    return getattr(module, "purefx_repacks", False)


def parameters_of(module: torch.fx.GraphModule) -> list[Parameter]:
    """Return the parameters of a graph module that takes no pytrees.

    Raises:
        InvalidProgram: a parameter has an invalid name.

    >>> [parameter.name for parameter in parameters_of(torch.fx.symbolic_trace(torch.nn.ReLU()))]
    ['input']
    """
    found: list[Parameter] = []
    for fx_node in module.graph.nodes:
        if fx_node.op == "placeholder":
            stars = (
                len(fx_node.target) - len(fx_node.target.lstrip("*"))
                if type(fx_node.target) is str
                else 0
            )
            name = fx_node.target[stars:] if stars else fx_node.target
            if stars > 2 or not is_identifier(name):
                fault = f"{short(fx_node.target)} cannot be a parameter: it is not an identifier of Python"
                raise InvalidProgram(
                    [
                        Violation(
                            "names", fault, node=where(fx_node), advice="rename it in the fx graph"
                        )
                    ]
                )
            rest = RestType(keywords=stars == 2) if stars else None
            found.append(Parameter(name, tuple(fx_node.args[:1]), rest))
    return found


class Attributes:
    """Collects the state of one root module.

    Args:
        root: the module.
    """

    def __init__(self, root: torch.nn.Module) -> None:
        self.root = root
        self.modules: dict[str, torch.nn.Module] = {}
        self.paths: dict[int, list[str]] = {}
        """All paths of each module, by its identity."""
        self.constants: dict[str, Any] = {}
        """Other attributes that graphs read (not parameters, buffers or modules), by path from the root."""
        self.held: dict[str, torch.nn.Module] = {}
        """Modules that are called as they are, by path from the root."""
        for path, module in root.named_modules(remove_duplicate=False):
            self.modules[path] = module
            self.paths.setdefault(id(module), []).append(path)

    def read(self, holder: torch.nn.Module, target: str, value: Any) -> None:
        """Record that a graph of a module reads an attribute, which may be neither parameter nor buffer."""
        for path in self.paths.get(id(holder), ()):
            self.constants.setdefault(join(path, target), value)

    def hold(self, holder: torch.nn.Module, target: str, module: torch.nn.Module) -> None:
        """Record that a graph of a module calls a module as it is."""
        for path in self.paths.get(id(holder), ()):
            self.held[join(path, target)] = module

    def state(self) -> State:
        """Return all state, in the order of ``state_dict``."""
        numbers = TensorIds()
        slots: dict[str, Slot] = {}
        for path, module in {**self.modules, **self.held}.items():
            if path in self.held:
                slots[path] = numbers.slot(module, SlotKind.MODULE, persistent=True)
            elif not self._is_inside(path):
                for name, slot in self._own(module, numbers):
                    slots[join(path, name)] = slot
        for path, value in self.constants.items():
            if path not in slots:
                slots[path] = numbers.slot(value, SlotKind.CONSTANT, persistent=False)
        return State.of(slots)

    def _is_inside(self, path: str) -> bool:
        return any(above in self.held for above in way_to(path)[:-1])

    def _own(self, module: torch.nn.Module, numbers: TensorIds) -> Iterator[tuple[str, Slot]]:
        for name, value in module.named_parameters(recurse=False, remove_duplicate=False):
            yield name, numbers.slot(value, SlotKind.PARAMETER, persistent=True)
        unsaved = unsaved_buffers(module)
        for name, value in module.named_buffers(recurse=False, remove_duplicate=False):
            yield name, numbers.slot(value, SlotKind.BUFFER, persistent=name not in unsaved)

    def hierarchy(self, traced: dict[str, str]) -> tuple[Module, ...]:
        """Return the existing modules, then those that only stacks name, with their parents."""
        # Each graph module has a distinct generated class.
        graph = torch.fx.GraphModule
        types = {
            path: class_name(graph if isinstance(found, graph) else type(found))
            for path, found in self.modules.items()
        }
        kinds: dict[str, str | None] = {
            path: kind for path, kind in types.items() if not self._is_inside(path)
        }
        for path, kind in traced.items():
            if path and not self._is_inside(path):
                for place in way_to(path):
                    kinds.setdefault(place, None)
                if kinds[path] in (None, PLAIN_MODULE):
                    kinds[path] = kind or None
        if traced.get(""):
            kinds[""] = traced[""]
        return tuple([Module(path, kind) for path, kind in kinds.items()])


PLAIN_MODULE = "torch.nn.modules.module.Module"
"""The class with which a GraphModule replaces a traced-through module; the stacks have the original class."""


def is_computed(owner: torch.nn.Module, name: str) -> bool:
    """Return whether an attribute of a module is computed when it is read.

    >>> is_computed(torch.nn.Linear(1, 1), "weight"), is_computed(torch.nn.Linear(1, 1), "T_destination")
    (False, False)
    """
    return isinstance(getattr(type(owner), name, None), property) and not any(
        name in owner.__dict__.get(kind, ()) for kind in HOLDERS
    )


HOLDERS = ("_parameters", "_buffers", "_modules")
