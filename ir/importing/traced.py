"""Graphs that any tracer made become ``Graph`` values: ``call_module``, ``call_method`` and ``get_attr`` included.

Each graph module is read once for each role that it plays: the root, the body of its calls, or a body that an operator takes.
The effects of a node come from its operator alone; they are unknown if the operator is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
import torch.fx
from attrs import define, evolve, field, frozen

from ..arguments import TREES, Arg, Body, Ref
from ..callables import Parameter, bind, class_name
from ..errors import InputError, InvalidProgram, UnsupportedProgram, Violation
from ..graph import Call, Frame, Get, Graph, Input, Node, Stack
from ..names import Names, is_identifier, is_name, is_path, join
from ..operators import Said
from ..own_operators import op_to_call
from ..signature import RestType
from ..torch_private import PyTreeCodeGen, generator_of_code, hooks_of
from ..verify.findings import short
from .backward import traced_backward, with_backward_calls
from .graphs import check_output, result_of, where
from .traced_values import MISSING, Attributes, Literals, Operators, is_computed, is_tensor, meta_of, relative_path

ROOTS = ("L__self__", "self")

TABLES = frozenset({"_modules"})
"""Attributes in which a module keeps its children."""


def read_place(text: object) -> str | None:
    """Return the path that a tracer spelled; "" for the root, None if the text is not a place.

    >>> read_place("L['self'].layers[0].up"), read_place("layers.0"), read_place("L__self__")
    ('layers.0.up', 'layers.0', '')
    >>> read_place("L['self']._modules['a']")
    'a'
    >>> read_place("L['self'].layers[i]"), read_place("__import__('os')")
    (None, None)
    """
    if type(text) is not str:
        return None
    roots = (text[: text.find("]") + 1], *ROOTS) if text.startswith(("L['", 'L["')) else ROOTS
    root = next((root for root in roots if text == root or text.startswith((f"{root}.", f"{root}["))), "")
    names = _steps(text[len(root) :] if root else f".{text}" if text else "")
    return None if names is None else ".".join(names)


def _steps(text: str) -> list[str] | None:
    names: list[str] = []
    at = 0
    while at < len(text):
        sign = text[at]
        end = _end_of_name(text, at + 1) if sign == "." else text.find("]", at) if sign == "[" else -1
        if end < 0:
            return None
        name = text[at + 1 : end] if sign == "." else _in_brackets(text[at + 1 : end])
        if name is None or not is_name(name) or (sign == "." and not name.replace("_", "a").isalnum()):
            return None
        at = end + (sign == "[")
        if not (name in TABLES and text[at : at + 1] == "["):
            names.append(name)
    return names


def _end_of_name(text: str, start: int) -> int:
    ends = [end for end in (text.find(".", start), text.find("[", start)) if end >= 0]
    return min(ends, default=len(text))


def _in_brackets(text: str) -> str | None:
    if text.isdecimal():
        return text
    return text[1:-1] if len(text) > 2 and text[0] == text[-1] and text[0] in "'\"" else None


class TracedStacks:
    """Reads the stacks of one graph, each distinct one once, and remembers the classes that they mention.

    >>> stacks = TracedStacks()
    >>> stacks.read({"": ("", "M"), "L__self___up": ("L['self'].up[0]", "Linear"), "x@1": ("up.0.act", "ReLU")})
    (Frame(path='up.0', call=0), Frame(path='up.0.act', call=1))
    """

    def __init__(self) -> None:
        self.types: dict[str, str] = {}
        self.last: dict[str, int] = {}
        """The highest number of a call of each module."""
        self._known: dict[Any, Stack] = {}
        self._around: dict[Frame, Stack] = {}

    def read(self, raw: object, *, below: str | None = None) -> Stack:
        """Return the stack below the root; () where there is none, or where it cannot be read.

        Args:
            raw: what the tracer wrote: a mapping from a key to (place, class).
            below: a module whose own call is left out, with all that is inside it.
        """
        if not isinstance(raw, Mapping) or not raw:
            return ()
        try:
            key = (tuple(raw.items()), below)
            stack = self._known.get(key)
        except TypeError:
            return ()
        if stack is None:
            stack = self._known[key] = self._legal(self._frames(key[0], below))
        return stack

    def _frames(self, entries: tuple[Any, ...], below: str | None) -> list[Frame]:
        frames: list[Frame] = []
        for key, value in entries:
            if type(key) is not str or type(value) is not tuple or len(value) != 2:
                return []
            spelled, _, inner = value[0].partition("@") if type(value[0]) is str else ("", "", "")
            place = read_place(spelled)
            if place is None:
                return []
            self.types.setdefault(place, class_name(value[1]) if isinstance(value[1], type | str) else "")
            if place == below:
                break
            number = key.rpartition("@")[2] if "@" in key else inner
            if place:
                frames.append(Frame(place, int(number) if number.isdecimal() and len(number) < 10 else 0))
        return frames

    def _legal(self, frames: list[Frame]) -> Stack:
        stack: Stack = ()
        for frame in frames:
            if frame in stack or self._around.setdefault(frame, stack) != stack:
                break
            stack = (*stack, frame)
            self.last[frame.path] = max(self.last.get(frame.path, 0), frame.call)
        return stack


@frozen
class Job:
    """A graph module that is to be read, and the role that it plays."""

    name: str
    module: torch.fx.GraphModule
    holder: torch.nn.Module
    """The module whose state its reads name."""
    prefix: str = ""
    """The way from the holder to it."""

    def path(self, target: str) -> str:
        """Return a path of the module as the holder writes it."""
        return target if target.startswith("/") else join(self.prefix, target)


class TracedReader:
    """Reads the graphs of one root, those of nested graph modules included.

    Args:
        root: the root; it is not changed.
        values: fake values of nodes that have none in their meta.
    """

    def __init__(self, root: torch.fx.GraphModule, values: Mapping[Any, Any], said: Said | None = None) -> None:
        self.root = root
        self.values = values
        self.attributes = Attributes(root)
        self.stacks = TracedStacks()
        self.traced = traced_backward(root.graph)
        self.operators = Operators(said)
        self.graphs: dict[str, Graph] = {}
        self.calls: dict[str, int] = {}
        """How often each module was called, by its path from the module that calls it."""
        self._names = Names([""])
        self._roles: dict[tuple[int, int, str], str] = {}
        self._todo: list[Job] = []

    def read(self) -> None:
        """Fill ``graphs``: the root under ``""``.

        Raises:
            InvalidProgram: a name that no graph can have.
            UnsupportedProgram: something that cannot be represented faithfully.
        """
        self._todo.append(Job("", self.root, self.root))
        while self._todo:
            job = self._todo.pop()
            self.graphs[job.name] = _GraphReader(self, job).graph()
        self.graphs[""] = with_backward_calls(self.graphs[""], self.traced.backward)

    def body(self, module: torch.fx.GraphModule, wanted: str, holder: torch.nn.Module, prefix: str = "") -> str:
        """Return the id of the graph of a nested module, which is read later."""
        key = (id(module), id(holder), prefix)
        name = self._roles.get(key)
        if name is None:
            name = self._roles[key] = self._names.fresh(wanted)
            self._todo.append(Job(name, module, holder, prefix))
        return name

    def number(self, holder: torch.nn.Module, path: str) -> int:
        """Return the number of the next call of a module."""
        place = f"{id(holder)} {path}"
        first = self.stacks.last.get(path, -1) + 1 if holder is self.root else 0
        number = self.calls[place] = max(self.calls.get(place, -1) + 1, first)
        return number


@define
class _GraphReader:
    reader: TracedReader
    job: Job
    known: dict[Any, Arg] = field(factory=dict)
    nodes: list[Node] = field(factory=list)
    inputs: dict[str, Input] = field(factory=dict)
    names: Names = field(init=False)
    literals: Literals = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.names = Names([fx_node.name for fx_node in self.job.module.graph.nodes])
        self.literals = Literals(self.known, self.build)

    def graph(self) -> Graph:
        """Return the graph."""
        check_output(self.job.module.graph, self.job.name)
        if self.job.name == "":  # which numbers of calls the stacks use must be known before a call is numbered
            for fx_node in self.job.module.graph.nodes:
                self.stack(fx_node)
        output: Arg = ()
        for fx_node in self.job.module.graph.nodes:
            if not is_identifier(fx_node.name):
                raise _misnamed(fx_node, fx_node.name, "the name of a node")
            match fx_node.op:
                case "placeholder":
                    self.known[fx_node] = Ref(fx_node.name)
                    self.inputs[fx_node.name] = Input(fx_node.name, meta_of(fx_node, self.reader.values))
                case "output":
                    output = self.literals.convert(fx_node.args[0], fx_node)
                case "get_attr":
                    self.attribute(fx_node)
                case "call_module":
                    self.call(fx_node)
                case "call_function" | "call_method":
                    self.operator(fx_node)
                case op:
                    raise UnsupportedProgram(f"{where(fx_node)}: there is no {short(op)} node in fx")
        return Graph(tuple(self.inputs.values()), tuple(self.nodes), output)

    def stack(self, fx_node: Any) -> Stack:
        if self.job.name:
            return ()
        below = fx_node.target if fx_node.op == "call_module" else None
        raw = self.reader.traced.stacks.get(fx_node) or fx_node.meta.get("nn_module_stack")
        return self.reader.stacks.read(raw, below=below)

    def add(self, fx_node: Any, do: Any, args: tuple[Arg, ...] = (), kwargs: tuple[tuple[str, Arg], ...] = ()) -> None:
        node = Node(fx_node.name, do, args, kwargs, self.stack(fx_node), meta_of(fx_node, self.reader.values))
        self.nodes.append(node)
        self.known[fx_node] = result_of(node, self.inputs)

    def operator(self, fx_node: Any) -> None:
        """Add a call of a function or of a method."""
        args = tuple([self.literals.convert(arg, fx_node) for arg in fx_node.args])
        kwargs = tuple(self.keywords(fx_node).items())
        if fx_node.op == "call_function":
            if not callable(fx_node.target):
                raise UnsupportedProgram(f"{where(fx_node)}: its target is {short(fx_node.target)}, which cannot be called")
            do = self.reader.operators.function(fx_node.target)
        else:
            if not is_identifier(fx_node.target):
                raise _misnamed(fx_node, fx_node.target, "the name of a method")
            if not args:
                raise UnsupportedProgram(f"{where(fx_node)}: a method is called of its first argument, and there is none")
            do = self.reader.operators.method(fx_node.target, of_tensor=is_tensor(fx_node.args[0], self.reader.values))
        self.add(fx_node, do, args, kwargs)

    def keywords(self, fx_node: Any) -> dict[str, Arg]:
        """Return the keyword arguments of a node."""
        for key in fx_node.kwargs:
            if not is_identifier(key):
                raise _misnamed(fx_node, key, "a keyword")
        return {key: self.literals.convert(value, fx_node) for key, value in fx_node.kwargs.items()}

    def attribute(self, fx_node: Any) -> None:
        """Add a read of state; a graph module that operators are given is a body, and None is a literal."""
        owner, value = self.find(fx_node)
        name = fx_node.target.rpartition(".")[2]
        if isinstance(value, torch.fx.GraphModule):
            self.known[fx_node] = self.body(fx_node, value)
            return
        if isinstance(value, torch.nn.Module):
            raise UnsupportedProgram(
                f"{where(fx_node)}: the module {fx_node.target!r} is used as a value; only calls of it are known"
            )
        if value is None or isinstance(value, TREES):
            self.known[fx_node] = value
            return
        if is_computed(owner, name):
            raise UnsupportedProgram(
                f"{where(fx_node)}: {fx_node.target!r} is computed when it is read ({type(owner).__qualname__}.{name}), "
                "so it is not state; remove the parametrization or the property first"
            )
        path = self.job.path(relative_path(fx_node.target))
        self.reader.attributes.read(self.job.holder, path, value)
        self.add(fx_node, Get(path))

    def find(self, fx_node: Any) -> tuple[torch.nn.Module, Any]:
        """Return the owner of what a node names, and what it is."""
        if not is_path(fx_node.target.removeprefix("/.") if type(fx_node.target) is str else fx_node.target):
            raise _misnamed(fx_node, fx_node.target, "the path of an attribute")
        owner, value = self.reader.attributes.find(self.job.module, fx_node.target)
        if value is MISSING:
            raise UnsupportedProgram(f"{where(fx_node)}: the module has no attribute {fx_node.target!r}")
        return owner, value

    def body(self, fx_node: Any, module: torch.fx.GraphModule) -> Body:
        """Return the body that operators are given."""
        for user in fx_node.users:
            if user.op != "call_function" or not self.reader.operators.function(user.target).effects.through_bodies:
                raise UnsupportedProgram(
                    f"{where(user)}: it uses the module {fx_node.target!r} as a value; only calls of it are known"
                )
        path = self.job.path(fx_node.target)
        wanted = f"{self.job.name}.{fx_node.target}" if self.job.name else f"${fx_node.target}"
        return Body(self.reader.body(module, wanted, self.job.holder, path))

    def call(self, fx_node: Any) -> None:
        """Add a call of a module: of its body where a graph shows all that it does, else of the module as it is."""
        _, module = self.find(fx_node)
        if not isinstance(module, torch.nn.Module):
            raise UnsupportedProgram(f"{where(fx_node)}: {fx_node.target!r} is {short(module)}, no module")
        args = tuple([self.literals.convert(arg, fx_node) for arg in fx_node.args])
        kwargs = self.keywords(fx_node)
        path = self.job.path(relative_path(fx_node.target))
        if not isinstance(module, torch.fx.GraphModule) or not is_transparent(module):
            self.reader.attributes.hold(self.job.holder, path, module)
            read = self.names.fresh(f"{fx_node.name}_module")
            self.nodes.append(Node(read, Get(path), stack=self.stack(fx_node)))
            self.add(fx_node, op_to_call(module), (Ref(read), *args), tuple(kwargs.items()))
            return
        frame, home = self.place(path, module)
        try:
            values = bind(self.parameters(module, fx_node), args, kwargs)
        except InputError as error:
            raise UnsupportedProgram(f"{where(fx_node)}: the call of {fx_node.target!r} {error}") from error
        passed = tuple([self.literals.packed(value) for value in values.values()])
        self.add(fx_node, Call(frame, self.reader.body(module, frame.path.lstrip("/"), home)), passed)

    def parameters(self, module: torch.fx.GraphModule, at: Any) -> list[Parameter]:
        found = parameters_of(module)
        return [evolve(one, default=tuple([self.literals.convert(value, at) for value in one.default])) for one in found]

    def place(self, path: str, module: torch.nn.Module) -> tuple[Frame, torch.nn.Module]:
        # Lowered modules have the bodies of later calls of a module beside it, as "path@number".
        base = path.partition("@")[0]
        real = next(
            (at for at in self.reader.attributes.paths.get(id(self.job.holder), ()) if join(at, base) in self.modules), None
        )
        home = module if real is None or base == path else self.modules[join(real, base)]
        return Frame(base, self.reader.number(self.job.holder, base)), home

    @property
    def modules(self) -> Mapping[str, torch.nn.Module]:
        return self.reader.attributes.modules

    def build(self, target: Any, args: tuple[Arg, ...], fx_node: Any) -> Ref:
        """Add a node that makes a value that no literal can be, and return its use."""
        name = self.names.fresh(f"{fx_node.name}_tuple")
        self.nodes.append(Node(name, self.reader.operators.function(target), args, stack=self.stack(fx_node)))
        return Ref(name)


def is_transparent(module: torch.nn.Module) -> bool:
    """Return whether the graph of a module shows all that a call of it does.

    >>> is_transparent(torch.fx.symbolic_trace(torch.nn.ReLU())), is_transparent(torch.nn.ReLU())
    (True, False)
    """
    if not isinstance(module, torch.fx.GraphModule) or hooks_of(module) or "forward" in module.__dict__:
        return False
    codegen = generator_of_code(module)
    return codegen is not None and not isinstance(codegen, PyTreeCodeGen)


def parameters_of(module: torch.fx.GraphModule) -> list[Parameter]:
    """Return the parameters of a graph module that takes no pytrees.

    Raises:
        InvalidProgram: a parameter has a name that no function can have.

    >>> [parameter.name for parameter in parameters_of(torch.fx.symbolic_trace(torch.nn.ReLU()))]
    ['input']
    """
    found: list[Parameter] = []
    for fx_node in module.graph.nodes:
        if fx_node.op == "placeholder":
            stars = len(fx_node.target) - len(fx_node.target.lstrip("*")) if type(fx_node.target) is str else 0
            name = fx_node.target[stars:] if stars else fx_node.target
            if stars > 2 or not is_identifier(name):
                raise _misnamed(fx_node, fx_node.target, "a parameter")
            rest = RestType(keywords=stars == 2) if stars else None
            found.append(Parameter(name, tuple(fx_node.args[:1]), rest))
    return found


def _misnamed(fx_node: Any, name: object, what: str) -> InvalidProgram:
    said = f"{short(name)} cannot be {what}: it is not an identifier of Python, or has quotes or signs that cannot be seen"
    return InvalidProgram([Violation("names", said, node=where(fx_node), advice="rename it in the fx graph")])
