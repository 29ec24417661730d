"""``import_fx``: any ``torch.fx.GraphModule`` becomes a ``Program``; its signature is read from its placeholders and pytrees.

Fake values come from an example if the graph has none.  ``traced.py`` reads the graph itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx
from attrs import evolve, frozen

from ..analysis.history import tracked
from ..arguments import Arg, thawed
from ..callables import bind
from ..calls.argument_tree import ArgumentTree
from ..effects.declared import Effects
from ..errors import ArgumentError, InputError, InputValueError, InvalidProgram, UnsupportedProgram, Violation
from ..graph import Call
from ..names import is_identifier
from ..operators import Declared, checked_declarations
from ..persistent import collector_paused, pmap
from ..program import Program
from ..signature import LiteralType, ObjectType, Signature, UserInput, UserOutput
from ..text.arguments import frozen_arg
from ..torch_private import (
    EXPORT_HOOKS,
    FAKE_REFUSALS,
    FakeTensorMode,
    PyTreeCodeGen,
    codegen_of,
    fake_copy,
    generator_of_code,
    hooks_of,
    pytree,
)
from ..validation import ADVICE, FX, OPERATION, invalid_names, kind_of
from ..verify import check
from ..verify.findings import PLAIN, leaves, short
from .constants import with_constants
from .joint import Convention, described, read_joint
from .traced import TracedFront, parameters_of


def read_traced_signature(module: torch.fx.GraphModule, output: Arg) -> tuple[Signature, tuple[Arg, ...]]:
    """Return the signature of a traced graph module, and the flat output of its root graph.

    Args:
        module: the graph module.
        output: the output of its graph, as it was read.

    Raises:
        InvalidProgram: an argument has an invalid name.
        UnsupportedProgram: code around the graph does more than the graph shows.
    """
    codegen = generator_of_code(module)
    if codegen is None:
        maker = type(codegen_of(module.graph)).__name__
        raise UnsupportedProgram(
            f"{maker} generates the code of this graph, which does more than the graph shows; to import the graph alone, call "
            f"graph.set_codegen(torch.fx.graph.CodeGen()){_REPLAYED.get(maker, '')}"
        )
    for hook in hooks_of(module):
        if getattr(hook, "__module__", None) != EXPORT_HOOKS:
            raise UnsupportedProgram("the module has forward hooks, which are not part of the graph; remove them first")
    if "forward" in module.__dict__:
        raise UnsupportedProgram("`forward` is set on the module itself and overrides its graph; delete module.forward first")
    info = codegen.pytree_info if isinstance(codegen, PyTreeCodeGen) else None
    inputs, in_spec, names = _plain_inputs(module) if info is None else _nested_inputs(module, info)
    if info is None:
        found, out_spec = pytree.tree_flatten(thawed(output, _Leaf))
        results = tuple([leaf.arg for leaf in found])
    else:
        results, out_spec = tuple(output) if isinstance(output, tuple) else (output,), info.out_spec
    return Signature(inputs, (UserOutput(),) * len(results), in_spec, out_spec, names), results


_REPLAYED = {
    "_DynamoBytecodeCodeGen": ". Before it, keep inputs = graph_module._dynamo_bytecode_flatten(*args), the inputs of the graph; "
    "after the import, restore_names(program, module, inputs=inputs) turns tensors of the module into state"
}
"""Further advice where Dynamo's bytecode is replayed around a graph."""


def _plain_inputs(module: torch.fx.GraphModule) -> tuple[tuple[UserInput, ...], Any, tuple[str, ...]]:
    inputs: list[UserInput] = []
    for parameter in parameters_of(module):
        default = [frozen_arg(value) for value in parameter.default]
        if not all(type(leaf) in PLAIN for value in default for leaf in leaves(value)):
            raise UnsupportedProgram(
                f"the default of the argument {parameter.name} is {short(default[0])}, not a literal; pass it in each call"
            )
        literal = LiteralType(default[0]) if default else None
        inputs.append(UserInput(parameter.rest or ObjectType(), parameter.name, literal))
    in_spec = pytree.tree_structure((tuple(range(len(inputs))), {}))
    return tuple(inputs), in_spec, tuple([spec.argument for spec in inputs])


def _nested_inputs(module: torch.fx.GraphModule, info: Any) -> tuple[tuple[UserInput, ...], Any, tuple[str, ...]]:
    in_spec = argument_spec(info)
    names = tuple([name for name in info.orig_args if name != "self"])
    parts = in_spec.children()
    if [part.type for part in parts] != [tuple, dict] or in_spec.type is not tuple:  # not (args, kwargs)
        in_spec = pytree.treespec_tuple([pytree.treespec_tuple(parts), pytree.treespec_dict()])
    tree = ArgumentTree.of(in_spec, names)
    if not all(map(is_identifier, tree.keyword)):
        advice = "use an identifier that is not a keyword of Python"
        raise InvalidProgram([Violation("names", "a keyword argument has an invalid name", advice=advice)])
    count = sum(fx_node.op == "placeholder" for fx_node in module.graph.nodes)
    if count != in_spec.num_leaves:
        fault = f"its code takes {in_spec.num_leaves} leaves, the graph has {count} placeholders"
        raise InvalidProgram([Violation("signature-leaves", fault, advice="change the pytree of the code with the placeholders")])
    return tuple([UserInput(ObjectType(), path) for path in tree.paths]), in_spec, names


def argument_spec(info: Any) -> Any:
    """Return the pytree of the arguments of a graph's code, without the module that ``symbolic_trace`` notes first.

    Args:
        info: the pytrees of the graph's code.
    """
    in_spec = info.in_spec
    if in_spec.type is not tuple or list(info.orig_args[:1]) != ["self"] or in_spec.num_children != len(info.orig_args):
        return in_spec
    return pytree.treespec_tuple(in_spec.children()[1:])


@frozen
class _Leaf:
    """A placeholder for any value in a pytree."""

    arg: Arg


def bound_example(module: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the value of each placeholder of a graph module in a call.

    Raises:
        InputError: the module does not take these arguments.

    >>> bound_example(torch.fx.symbolic_trace(torch.nn.ReLU()), (), {"input": 3})
    [3]
    """
    codegen = generator_of_code(module)
    if not isinstance(codegen, PyTreeCodeGen):
        return list(bind(parameters_of(module), args, kwargs).values())
    found, spec = pytree.tree_flatten((args, kwargs))
    wanted = argument_spec(codegen.pytree_info)
    if wanted.num_leaves != spec.num_leaves:
        raise InputError(f"the graph takes {wanted.num_leaves} leaves, the example has {spec.num_leaves}")
    return found


def example_values(module: torch.fx.GraphModule, inputs: Any) -> Mapping[Any, Any]:
    """Return the fake value of each node of a graph module.

    Args:
        module: the graph module; it is not changed.
        inputs: the arguments of an example call: a tuple, or a dict of them by name.

    Raises:
        InputValueError: the graph does not run on the example; the message names the node.

    >>> traced = torch.fx.symbolic_trace(torch.nn.ReLU())
    >>> [tuple(value.shape) for value in example_values(traced, (torch.ones(2, 3),)).values()]
    [(2, 3), (2, 3), (2, 3)]
    """
    if not isinstance(inputs, tuple | dict):
        raise InputValueError(f"example_inputs must be a tuple, or a dict by name, not a {type(inputs).__name__}")
    args = bound_example(module, *((inputs, {}) if isinstance(inputs, tuple) else ((), inputs)))
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    copied = fake_copy(module, mode)
    fakes = [mode.from_tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf for leaf in args]
    run = torch.fx.Interpreter(copied, garbage_collect_values=False)
    run.extra_traceback = False
    with mode, torch.no_grad():
        try:
            run.run(*fakes, enable_io_processing=False)
        except FAKE_REFUSALS:
            pass  # a value that depends on contents stays unknown, with all that follow from it
        except Exception as error:
            name = next((node.name for node in copied.graph.nodes if node not in run.env), "the call")
            fault = f"the graph does not run on example_inputs: {name} raises {type(error).__name__}: {error}"
            raise InputValueError(fault) from error
    pairs = zip(module.graph.nodes, copied.graph.nodes, strict=True)
    return {fx_node: run.env[other] for fx_node, other in pairs if other in run.env}


def import_fx(
    graph_module: torch.fx.GraphModule,
    *,
    example_inputs: tuple[Any, ...] | Mapping[str, Any] | None = None,
    state: torch.nn.Module | Mapping[str, torch.Tensor] | None = None,
    effects: Mapping[Callable[..., Any], Effects] | None = None,
    provenance: bool = True,
) -> Program:
    """Import any fx graph module as an immutable value.

    Args:
        graph_module: from ``torch.fx.symbolic_trace``, ``make_fx``, Dynamo, ``ep.module()``, or built by hand; it is not
            changed, and its tensors are shared, not copied.  Its graph is read, so an edited one need not be recompiled.
        example_inputs: arguments of one call.  They give nodes fake values where the tracer left none, so that tensor methods
            become known operators.  Other inputs may still be passed.
        state: the module that AOTAutograd traced, or a mapping from names to its tensors: inputs that the graph describes as its
            parameters and buffers (``meta["desc"]``) become state, and outputs that it describes as gradients or new contents
            have these roles. A joint graph becomes a joint program, called with ``tangents=``, the gradients of its results.
        effects: effects of functions and operators of other libraries, as in ``declare``, for this import alone.
        provenance: whether every node records its origin, for ``history`` and ``became``.

    Returns:
        A program with the graph as its root.  Called graph modules become bodies, other called modules stay as they are, and
        every attribute becomes state.

    Raises:
        EffectsError: an operator is declared with fewer effects than its schema states.
        InvalidProgram: a name is invalid, or the graph cannot be read.  ``transform`` and ``lower`` verify the rest.
        UnsupportedProgram: it cannot be represented faithfully; the message names the cause.
        InputValueError: the graph does not run on the example.
        TypeError: it is not a GraphModule.

    >>> import torch, purefx as px
    >>> class Twice(torch.nn.Module):
    ...     def forward(self, x, scale=2):
    ...         return {"y": torch.relu(x) * scale}
    >>> program = px.import_fx(torch.fx.symbolic_trace(Twice()))
    >>> [node.do.name for node in program.main.nodes], px.lower(program)(torch.ones(2))
    (['torch.relu', 'operator.mul'], {'y': tensor([2., 2.])})
    """
    FX.check(graph_module, "import_fx")
    values = {} if example_inputs is None else example_values(graph_module, example_inputs)
    with collector_paused():
        declared = checked_declarations(effects)
        program = _read(graph_module, values, declared) if state is None else _described(graph_module, state, declared)
        return tracked(program) if provenance else program


def _described(module: torch.fx.GraphModule, state: Any, declared: Declared) -> Program:
    if not isinstance(state, torch.nn.Module | Mapping):
        raise ArgumentError(f"state must be the traced module or a mapping from names to its tensors, not {kind_of(state)}")
    found = described(module.graph)
    if found is None:
        raise UnsupportedProgram(
            "state= needs a graph that describes its inputs (meta['desc'], from aot_export_joint_with_descriptors), and this one "
            "does not; use "
            "restore_names(import_fx(graph_module), module, inputs=...), which turns inputs that are tensors of it into state"
        )
    return check(read_joint(module, found, state, Convention.flat(found), declared))  # the state of the caller may not fit


def _read(module: torch.fx.GraphModule, values: Mapping[Any, Any], declared: Declared) -> Program:
    reader = TracedFront(module, values, declared)
    root = reader.graphs[""]
    signature, leaves = read_traced_signature(module, root.output)
    reader.graphs[""] = evolve(root, output=leaves)
    called = any(type(node.do) is Call for graph in reader.graphs.values() for node in graph.nodes)
    program = Program(
        graphs=pmap(reader.graphs),
        state=reader.attributes.state(),
        signature=signature,
        modules=reader.attributes.hierarchy(reader.stacks.types),
        facts=frozenset({"state sunk"} if called else {"flat", "state sunk"}),
    )
    if len(program.order) != len(program.graphs):  # bodies that nodes name but nothing uses
        program = program.evolve(graphs=pmap({name: program.graphs[name] for name in program.order}))
    program = with_constants(program)
    odd = [found for found in invalid_names(program) if found[1] != OPERATION]  # functions may be called anything
    if odd:
        raise InvalidProgram([Violation("names", f"{short(name)} is not a name of {what}", graph, node, advice=ADVICE)
                              for name, what, graph, node in odd])  # fmt: skip
    return program
