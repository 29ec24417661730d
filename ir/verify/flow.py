"""Rules about what values are: several results, literals that calls hand over, objects that ``purefx.pack`` made.

What is known of a value is followed from graph to graph, for each call that hands something else to its body: what an operator
inside of one cannot take is a finding where the body is called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import define, field

from ..arguments import CONTAINERS, TREES, Arg, Body, Items, Ref, children_of, refs_in, replace_refs
from ..graph import Call, Node, Op
from ..own_operators import PACK, UNPACK, is_boundary, is_module_call
from ..persistent import derived
from ..signature import InputMutation, StateMutation
from ..tensors import value_in
from ..torch_private import HigherOrderOperator, OpOverload, schema_of
from .findings import Finding, leaves, short
from .operators import fault_of
from .survey import GETITEM, Census, Survey


def _returns(target: Any) -> int:
    """Return how many results the schema of an operator has; 1 for what has no schema."""
    return len(schema_of(target).returns) if isinstance(target, OpOverload) else 1


@derived
def _several(survey: Survey) -> dict[int, int]:
    """Return how many results each operator gives, by the id of the ``Op``, where they are several."""
    return {id(op): count for op, _, _ in survey.ops.values() if (count := _returns(op.target)) > 1}


def check_results(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given all results of a call or of an operator where they take one value."""
    several = _several(survey)
    for census in survey.censuses.values():
        if not several and not census.calls:
            continue
        whole = {node.name for _, node, do in census.calls if type(survey.censuses[do.graph].graph.output) is tuple}
        whole.update([node.name for _, node in census.nodes if id(node.do) in several] if several else ())
        for index, node in census.nodes if whole else ():
            if type(node.do) is Op and isinstance(node.do.target, OpOverload):
                for name in [name for name in node.refs() if name in whole]:
                    yield census.at(index, f"it takes {name!r}, which is several results, as one value")


def check_projections(survey: Survey) -> Iterator[Finding]:
    """Find ``getitem`` of what is not a value, and beyond the number of results where that is known."""
    for census in survey.censuses.values():
        if not census.projections:
            continue
        wanted = {node.args[0].name for _, node in census.projections if node.args and type(node.args[0]) is Ref}
        makers = {node.name: node for _, node in census.nodes if node.name in wanted}
        for index, node in census.projections:
            fault = _projection_fault(survey.censuses, node, makers) if len(node.args) == 2 else None
            if fault is not None:
                yield census.at(index, fault)


def _projection_fault(censuses: Mapping[str, Census], node: Node, makers: Mapping[str, Node]) -> str | None:
    source, item = node.args
    maker = makers.get(source.name) if type(source) is Ref else None
    if type(source) is not Ref and type(source) is not tuple and type(source) is not Items:
        return f"it takes an item of {short(source)}, which is not a value with items"
    length = _length(censuses, maker) if maker is not None else len(source) if isinstance(source, tuple) else None
    is_call = maker is not None and type(maker.do) is Call
    if length is None or (type(item) in (Ref, slice) and not is_call):
        return None  # Python takes any part of a tuple
    if type(item) is not int or not -length <= item < length:
        return f"it takes result {short(item)} of {repr(source.name) if type(source) is Ref else 'a literal'}, which has {length}"
    return None


RESULTS = {
    "cond": 1, "while_loop": 1, "invoke_subgraph": 0, "wrap_with_set_grad_enabled": 1, "hints_wrapper": 0, "strict_mode": 0,
}  # fmt: skip
"""Which argument of a higher-order operator is the graph whose results it gives."""


def _length(censuses: Mapping[str, Census], maker: Node) -> int | None:
    """Return how many results a node returns; None if that is not known, or where it gives no tuple or list."""
    do = maker.do
    if type(do) is Call:
        return _width(censuses, do.graph)
    target: Any = do.target if type(do) is Op else None
    if (count := _returns(target)) != 1:
        return count
    if isinstance(target, HigherOrderOperator) and target.name() in RESULTS:
        place = RESULTS[target.name()]
        body = maker.args[place] if place < len(maker.args) else None
        return _width(censuses, body.graph) if type(body) is Body else None
    known: Any = value_in(maker.meta) if type(do) is Op else None
    return len(known) if type(known) in (tuple, list) else None


def _width(censuses: Mapping[str, Census], name: str) -> int | None:
    output = censuses[name].graph.output
    return len(output) if type(output) in (tuple, Items) else None


UNKNOWN = Ref("")
"""A value of which nothing is known: no value has this name."""

OBJECT = Ref("/object")
"""An object of a registered pytree type."""

MOST_WALKS = 1000
"""How often, beyond once for each graph, bodies are walked for what they are handed; a program can ask for 2**n times."""


@derived
def _flow(survey: Survey) -> _Flow:
    return _Flow(survey)


def check_handed(survey: Survey) -> Iterator[Finding]:
    """Find operators that cannot take what a call hands to their body, or returns to them."""
    flow = _flow(survey)
    yield from flow.handed.values()
    given: Any = flow.results.get((survey.program.root, ()))
    if type(given) is tuple:
        # Literals of the root itself are told by the rule "mutations".
        own: Any = survey.main.graph.output
        for number, (part, arg, spec) in enumerate(zip(given, own, survey.program.signature.outputs, strict=True)):
            if type(spec) in (StateMutation, InputMutation) and type(part) is not Ref and type(arg) is Ref:
                text = f"the new contents {arg.name!r} are {short(part)}, which a call returns, not a value"
                yield Finding(text, node=f"signature.outputs[{number}]")


def check_packed(survey: Survey) -> Iterator[Finding]:
    """Find operators that are given an object of a registered pytree type."""
    yield from _flow(survey).packed.values()


@define
class _Level:
    """One walk through a graph: what is known of its values."""

    census: Census
    key: Any
    known: dict[str, Arg]
    call: str = ""
    """Which call it is, for messages; empty if nothing was handed over."""
    result: str = ""
    """The value that stands for what it returns, in the level around it."""
    rest: Iterator[tuple[int, Node]] = field(init=False)
    whole: set[str] = field(factory=set)
    """Values that are several results of this graph's own nodes: of their direct uses the rule "results" speaks."""

    def __attrs_post_init__(self) -> None:
        self.rest = self.census.nodes

    def learns(self, name: str, value: Arg) -> None:
        """Remember what a value is, where something is known of it."""
        if _says(value):
            self.known[name] = value

    def gets(self, name: str, value: Arg) -> None:
        """Remember what a call or an operator returns."""
        self.learns(name, value)
        if type(value) is tuple:
            self.whole.add(name)


class _Flow:
    """What is known of values, followed through calls; graphs of whose values nothing is known are not walked."""

    def __init__(self, survey: Survey) -> None:
        self.censuses = survey.censuses
        self.several = _several(survey)
        self.packs = any(op.name == PACK.name for op, _, _ in survey.ops.values())
        self.results: dict[Any, Arg] = {}
        """What graphs return, by name and by what they were handed."""
        self.handed: dict[tuple[str, int], Finding] = {}
        self.packed: dict[tuple[str, int, str], Finding] = {}
        if self.several or self.packs or not all(map(_hands_values_alone, survey.censuses.values())):
            for census in reversed(survey.censuses.values()):
                if self.packs or self._is_seeded(census):
                    self._walk(census)
                else:
                    self.results[census.name, ()] = _returned(census, self.several)

    def _is_seeded(self, census: Census) -> bool:
        return _hands_on(census, {do.graph: self.results.get((do.graph, ()), UNKNOWN) for _, _, do in census.calls}, self.several)

    def _walk(self, census: Census) -> None:
        # From a graph of whose inputs nothing is known, to the bodies that it hands something to.
        levels = [_Level(census, (), {})]
        while levels:
            level = levels[-1]
            index, node = next(level.rest, (0, None))
            if node is None:
                levels.pop()
                given = self.results[level.census.name, level.key] = _blurred(level.census.graph.output, level.known)
                if levels:
                    levels[-1].gets(level.result, given)
            elif type(node.do) is Call:
                inner = self._called(node, node.do, level)
                if inner is not None:
                    levels.append(inner)
            elif type(node.do) is Op:
                self._look(level, index, node, node.do)

    def _called(self, node: Node, call: Call, level: _Level) -> _Level | None:
        census = self.censuses[call.graph]
        args = [_blurred(arg, level.known) for arg in node.args]
        known = {formal.name: arg for formal, arg in zip(census.graph.inputs, args, strict=True) if _says(arg)}
        key = tuple([(name, _key(arg)) for name, arg in known.items() if arg is not None])
        if (call.graph, key) in self.results:
            given = self.results[call.graph, key]
        elif len(self.results) > len(self.censuses) + MOST_WALKS:
            given = UNKNOWN
        else:
            return _Level(census, key, known, str(call.instance), node.name)
        level.gets(node.name, given)
        return None

    def _look(self, level: _Level, index: int, node: Node, op: Op) -> None:
        names = node.refs()
        if not level.known.keys().isdisjoint(names):
            self._look_for_objects(level, index, node, names)
            direct = any(type(arg) is Ref and arg.name in level.whole for arg in (*node.args, *[arg for _, arg in node.kwargs]))
            used = node.using(level.known)
            if op.name == GETITEM and len(used.args) == 2:
                fault = None if direct else _projection_fault(self.censuses, used, {})
                if fault is None:
                    level.learns(node.name, _item(*used.args))
            else:
                fault = None if direct else fault_of(used, op.target)
            if fault is not None and (level.census.name, index) not in self.handed and fault_of(node, op.target) is None:
                said = f"in the call {level.call}: {fault}" if level.call else fault
                self.handed[level.census.name, index] = level.census.at(index, said)
        if op.name == PACK.name and _is_of_a_type(node):
            level.learns(node.name, OBJECT)
        elif count := self.several.get(id(op)):
            level.gets(node.name, (UNKNOWN,) * count)

    def _look_for_objects(self, level: _Level, index: int, node: Node, names: list[str]) -> None:
        said = node.do.name if type(node.do) is Op else ""
        if not self.packs or is_module_call(node) or is_boundary(node) or said in (PACK.name, UNPACK.name):
            return
        for name in names:
            value = level.known.get(name)
            if said == GETITEM and type(value) is tuple:
                continue  # one of its items, which need not be the object
            if any(type(leaf) is Ref and leaf == OBJECT for leaf in leaves(value)):
                text = f"it takes {name!r}, which is an object that {PACK.name} made, or holds one"
                self.packed.setdefault((level.census.name, index, name), level.census.at(index, text))


def _hands_on(census: Census, given: Mapping[str, Arg], several: Mapping[int, int]) -> bool:
    # Whether anything but values of which nothing is known is handed over or comes back; `given` has what callees return.
    args = [arg for _, node, _ in census.calls for arg in node.args]
    if not all(map(_is_value, args)):
        return True
    for value in given.values():
        if not all(map(_is_value, value if type(value) is tuple else (value,))):
            return True
    handed = {arg.name for arg in args if type(arg) is Ref}
    if any(type(given[do.graph]) in CONTAINERS and node.name in handed for _, node, do in census.calls):
        return True
    # Mostly empty, or of few operators: then the nodes of no graph are looked at.
    return bool(several and handed) and any(id(node.do) in several and node.name in handed for _, node in census.nodes)


def _returned(census: Census, several: Mapping[int, int]) -> Arg:
    # What a graph returns, where its own operators alone say something of it.
    if not several:
        return _blurred(census.graph.output, {})
    given = set(refs_in((census.graph.output,)))
    makers = [node for _, node in census.nodes if id(node.do) in several and node.name in given]
    return _blurred(census.graph.output, {node.name: (UNKNOWN,) * several[id(node.do)] for node in makers})


def _says(value: Arg) -> bool:
    return type(value) is not Ref or value == OBJECT


def _is_value(arg: Arg) -> bool:
    return type(arg) is Ref or arg is None


def _hands_values_alone(census: Census) -> bool:
    # Nearly all graphs: where all of them do, nothing is known of any value, and none is walked.
    if not census.is_root and not _is_value(census.graph.output):
        return False
    return all(_is_value(arg) for _, node, _ in census.calls for arg in node.args)


PLAIN_TYPES = frozenset({tuple, list, dict})


def _is_of_a_type(node: Node) -> bool:
    todo: list[Any] = [node.args[1]] if len(node.args) == 2 and isinstance(node.args[1], TREES) else []
    while todo:
        spec = todo.pop()
        if not spec.is_leaf():
            if spec.type not in PLAIN_TYPES:
                return True
            todo.extend(spec.children())
    return False


def _blurred(arg: Arg, known: dict[str, Arg]) -> Arg:
    """Return what is known of an argument; what it uses besides is ``UNKNOWN``."""
    if type(arg) is Ref:
        return known.get(arg.name, UNKNOWN)
    return replace_refs(arg, {name: known.get(name, UNKNOWN) for name in refs_in((arg,))})


def _item(whole: Arg, item: Arg) -> Arg:
    if type(whole) is tuple and type(item) is int and -len(whole) <= item < len(whole):
        return whole[item]
    return UNKNOWN


def _key(arg: Arg) -> Any:
    # What operators ask of a literal: of what kind it is, and which item is taken.
    if type(arg) in CONTAINERS:
        return type(arg), *[_key(part) for part in children_of(arg)]
    return (type(arg), arg) if type(arg) in (int, Ref) else type(arg)
