"""Pickle lowered modules as data, without code other than names of functions in this file.

Loading lowers the program again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.callables import Method
from ...ir.errors import ParseError, UnsupportedProgram, first_line
from ...ir.graph import Frame, Op
from ...ir.operators import registered
from ...ir.persistent import pmap
from ...ir.program import Program
from ...ir.signature import UserInput
from ...ir.state_changes import check_picklable
from ...ir.store.metas import read_metas, write_metas
from ...ir.text import parse
from ...ir.text.lexer import Known
from ...ir.torch_private import HigherOrderOperator, OpOverload, pytree
from ..lower import lower_unchecked, write_parameter
from .context import Key, LoweringContext, StateNames
from .module import DERIVED, GRAPHS, MADE, OURS, Lowered, own_state, plain_class


def key_of(module: Any) -> Key:
    """Return the key of a module in its lowering."""
    place = module.purefx_place
    return place.path, place.call, place.body.name


def reduce_module(module: Lowered) -> tuple[Any, ...]:
    """Return the result of ``__reduce__`` for a module.

    Raises:
        UnsupportedProgram: its graph was edited, its class was changed, or a piece of state cannot be pickled.
    """
    kind = plain_class(type(module))
    if MADE not in kind.__dict__:
        raise UnsupportedProgram(
            f"{module.purefx_place.path or 'the root'} cannot be pickled, because its class was changed to {kind.__qualname__} "
            "(as parametrizations do); save its state_dict() instead, and repeat the change after loading"
        )
    attributes = module.__dict__.copy()  # another thread may read attributes
    graphs = [attributes[key] for key in GRAPHS if isinstance(attributes.get(key), torch.fx.Graph)]
    if any(edited(module, graph) for graph in graphs):
        raise UnsupportedProgram(
            f"{module.purefx_place.path or 'the root'}: its graph was edited, and edited graphs cannot be pickled; pickle the "
            "module before the edit, or save its state_dict() and repeat the edit after loading"
        )
    bodies = {id(body) for body in module.purefx_context.nested.values()} | set(map(id, graphs))
    state = {
        key: value
        for key, value in attributes.items()
        if key not in DERIVED and not key.startswith(OURS) and id(value) not in bodies
    }
    for name, value in own_state(module):
        check_picklable(name, value)
    floating = attributes["purefx_plan"].checks.floating if "purefx_plan" in attributes else False
    return load_module, (module.purefx_context, key_of(module), floating), state


def edited(module: Any, graph: torch.fx.Graph) -> bool:
    """Return whether a graph differs from the original graph of the module."""
    both = (module.purefx_place.fx_graph(module).nodes, graph.nodes)
    fresh, mine = (
        [(n.op, str(n.target), n.name, str(n.args), str(n.kwargs)) for n in nodes] for nodes in both
    )
    return fresh != mine


def load_module(context: LoweringContext, key: Key, floating: bool) -> torch.nn.Module:  # noqa: FBT001  pickle calls by position
    """Return a freshly lowered module without state; pickle then sets its attributes."""
    kind, ours = context.copies[key]
    made: torch.nn.Module = object.__new__(kind)
    torch.nn.Module.__init__(made)
    made.__dict__.update(ours)
    if "purefx_plan" in ours:
        made.__dict__["purefx_plan"] = plan = copy.deepcopy(ours["purefx_plan"])
        plan.checks.floating = floating
    return made


def reduce_context(context: LoweringContext) -> tuple[Any, ...]:
    """Return the result of ``__reduce__`` for a context.

    Raises:
        UnsupportedProgram: the program contains something that cannot be written as text.
    """
    program = context.program
    bare = _with_specs(program, {}).evolve(facts=frozenset())
    text = bare.text()
    operators = _foreign(program)
    _check_text(text, bare, operators)
    signature, calls = program.signature, program.call_signatures
    signatures = [(None, signature), *[(frame, calls[frame]) for frame in calls]]
    specs = {
        frame: (write_tree(each.in_spec), write_tree(each.out_spec)) for frame, each in signatures
    }
    foreign = {
        name: Foreign(name) if foreign_operator(name) is target else target
        for name, target in operators.items()
    }
    only = [spec.only for spec in signature.users.values()]
    names = context.names
    of_state = (names.constants, names.ties, names.hooked, names.uncertain)
    rest = (foreign, of_state, context.to, only)
    return load_context, (text, specs, write_metas(program), rest)


def _foreign(program: Program) -> dict[str, Any]:
    # Operators that text may not name are pickled by reference, for unpicklers that allow only some functions.
    found = {name: registered(name) for name in program.foreign_operators}
    found |= {
        node.do.name: node.do.target
        for _, node in program.nodes()
        if type(node.do) is Op and node.do.name in found
    }
    return {
        name: target
        for name, target in found.items()
        if target is not None and target is not write_parameter
    }


@frozen
class Foreign:
    """A picklable reference to an operator that text may not name; torch's operators cannot be pickled."""

    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        return foreign_operator, (self.name,)


def foreign_operator(name: str) -> Any:
    """Return the operator with a name, denied or not.

    >>> foreign_operator("aten._print.default") is torch.ops.aten._print.default
    True
    """
    found = registered(name)
    return found if isinstance(found, OpOverload | HigherOrderOperator) else None


def write_tree(spec: Any) -> Any:
    """Return a pytree spec as nested tuples, because torch warns when its leaf specs are pickled."""
    if spec is None or spec.is_leaf():
        return spec is None
    return spec.type, spec.context, [write_tree(child) for child in spec.children()]


def read_tree(written: Any) -> Any:
    """Return the pytree spec that ``write_tree`` wrote.

    >>> spec = pytree.tree_structure({"a": 1, "b": (2, None)})
    >>> read_tree(write_tree(spec)) == spec, read_tree(write_tree(None)) is None
    (True, True)
    """
    if isinstance(written, bool):
        return None if written else pytree.treespec_leaf()
    kind, context, children = written
    return pytree.TreeSpec(kind, context, [read_tree(child) for child in children])


NO_TEXT = "the program contains arguments that cannot be written as text, so it cannot be pickled: save its state_dict()"


def _check_text(text: str, program: Program, operators: Mapping[str, Any]) -> None:
    # Fail here rather than when loading.
    try:
        read = parse(text, operators=operators)
    except ParseError as error:
        raise UnsupportedProgram(f"{NO_TEXT} ({first_line(error)})") from error
    if read != program:
        raise UnsupportedProgram(NO_TEXT)
    for (_, mine), (_, theirs) in zip(program.nodes(), read.nodes(), strict=True):
        if (
            type(mine.do) is not Op
            or type(theirs.do) is not Op
            or mine.do.target is write_parameter
        ):
            continue  # lowering finds writes to parameters again
        if mine.do.target is not theirs.do.target and not (
            type(mine.do.target) is Method and mine.do.target == theirs.do.target
        ):
            raise UnsupportedProgram(
                f"node {mine.name}: {mine.do.name} is not found by its name, so it cannot be pickled"
            )


def _with_specs(program: Program, specs: Mapping[Frame | None, tuple[Any, Any]]) -> Program:
    # The pytree specs of the root (None) and of preserved calls, which may contain user types, which pickle can write and
    # text cannot.
    def put(frame: Frame | None, signature: Any) -> Any:
        arguments, results = map(read_tree, specs.get(frame, (write_tree(None), write_tree(None))))
        return evolve(signature, in_spec=arguments, out_spec=results)

    calls = {frame: put(frame, program.call_signatures[frame]) for frame in program.call_signatures}
    return program.evolve(signature=put(None, program.signature), call_signatures=pmap(calls))


def load_context(text: str, specs: Any, metas: Mapping[str, Any], rest: Any) -> LoweringContext:
    """Lower the program of a text again, without state, and return its context.

    Raises:
        UnsupportedProgram: an operator of the program does not exist in this torch.
        ParseError: the text was changed.
    """
    operators, of_state, to, only = rest
    program = _with_specs(parse(text, operators=operators), specs)
    accepted = iter(only)  # a pickle is as trusted as the original
    inputs = [
        evolve(spec, only=next(accepted)) if type(spec) is UserInput else spec
        for spec in program.signature.inputs
    ]
    signature = evolve(program.signature, inputs=tuple(inputs))
    program = program.evolve(
        signature=signature, graphs=read_metas(program, metas, Known(operators))
    )
    root: Any = lower_unchecked(program, to, names=StateNames(*of_state))
    context: LoweringContext = root.purefx_context
    for module in (
        *root.modules(),
        *(found for _, found in root.purefx_hidden()),
        *context.nested.values(),
    ):
        if "purefx_place" in module.__dict__:
            ours = {
                name: value
                for name, value in module.__dict__.copy().items()
                if name.startswith("purefx_")
            }
            context.copies[key_of(module)] = (type(module), ours)
    return context
