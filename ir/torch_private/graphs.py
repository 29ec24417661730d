"""Private names of torch for fx graphs and pytrees: generated code, specs, where nodes come from.

One idea: a name is given a type and a reason here, and nothing more.
"""

# pyright: reportPrivateUsage=false
# Using private names in one place is what this folder is for.

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.fx._pytree
import torch.fx._symbolic_trace
import torch.fx.graph
import torch.fx.traceback
import torch.utils._pytree

__all__ = [
    "EMPTY_STACK_KEY", "NodeSource", "PyTreeCodeGen", "PyTreeInfo", "Replay", "codegen_of", "fields_of", "generator_of_code",
    "is_tracing", "pytree", "read_node_source", "replay_of", "replayed_attributes", "run_while_tracing", "tree_flatten_spec",
]  # fmt: skip


pytree: Any = torch.utils._pytree
"""The pytree library; torch has no public name for it, and exported signatures are its ``TreeSpec``."""

tree_flatten_spec: Any = torch.fx._pytree.tree_flatten_spec
"""Takes a value apart as a spec says; torch's own graphs with preserved call signatures use it."""

PyTreeCodeGen: Any = torch.fx.graph._PyTreeCodeGen
"""Makes a graph's code take and give pytrees, as the graph of ``ep.module()`` does."""

PyTreeInfo: Any = torch.fx.graph._PyTreeInfo
"""Its argument names and specs."""

NodeSource: Any = torch.fx.traceback.NodeSource
"""What ``meta["from_node"]`` holds: which node a node was made from, and by which pass."""

EMPTY_STACK_KEY = "_empty_nn_module_stack_from_metadata_hook"
"""The key that the exporter gives to a node that no module stack is known for."""


def fields_of(kind: type) -> tuple[str, ...]:
    """Return the fields of a named tuple's class, () for another class; the underscore is Python's, not torch's.

    >>> fields_of(PyTreeInfo), fields_of(tuple)
    (('orig_args', 'in_spec', 'out_spec'), ())
    """
    return getattr(kind, "_fields", ()) if issubclass(kind, tuple) else ()


def codegen_of(graph: torch.fx.Graph) -> Any:
    """Return what generates a graph's code; a GraphModule copies its pytree specs."""
    return graph._codegen


def generator_of_code(module: torch.fx.GraphModule) -> Any:
    """Return what generates the code of a module's graph where that is one whose inputs and outputs a graph shows, else None."""
    codegen: Any = module.graph._codegen
    return codegen if type(codegen) in (torch.fx.graph.CodeGen, PyTreeCodeGen) else None


class Replay(NamedTuple):
    """What surrounds a graph that ``dynamo_graph_capture_for_export`` made; no public name leads to it."""

    around: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Makes the function that Dynamo's bytecode is; it calls what it is given as the graph."""
    root: Any
    """What the function takes first: the module, an object whose method was captured, or None where it takes neither."""
    names: tuple[str, ...]
    """The arguments of the capture, in order."""
    positional: int
    """How many of them the function takes by position."""
    keywords: tuple[str, ...]
    """Under which names it takes the others."""
    in_tuple: bool
    """Whether the result is put into a tuple."""


def replay_of(module: torch.fx.GraphModule) -> Replay | None:
    """Return the bytecode that is replayed around a module's graph; None where there is none, or it is not where it was."""
    codegen: Any = module.graph._codegen
    if type(codegen).__name__ != "_DynamoBytecodeCodeGen":
        return None
    try:
        flatten: Any = module._dynamo_bytecode_flatten
        processor, made = flatten.input_processor, flatten.out.forward_callable
        return Replay(
            lambda graph: made(compiled_fn=graph, extra_globals=flatten.f_globals),
            processor.root,
            tuple(codegen.orig_arg_names),
            processor.num_args,
            tuple(processor.kwarg_names),
            codegen.wrap_tuple,
        )
    except AttributeError:
        return None


def replayed_attributes(module: torch.fx.GraphModule, graph: torch.fx.Graph) -> dict[str, Any]:
    """Return what a view of such a module holds: the same children and state, another graph, and nothing of the bytecode.

    Its hooks that were traced are in the graph; the capture keeps them for their closures, and its call leaves them out.
    """
    gone = {"meta", "_dynamo_bytecode_flatten", "_dynamo_bytecode_unflatten"}
    if getattr(getattr(module, "_wrapped_call", None), "cls_call", None) is not None:
        gone |= {"_forward_hooks", "_forward_pre_hooks"}
    held = {name: value for name, value in module.__dict__.items() if name not in gone}
    return {**held, "_graph": graph, "meta": {}}


def is_tracing() -> bool:
    """Say whether ``torch.fx.symbolic_trace`` is running the code that asks; the exporter sets the same flag and is not meant."""
    return torch.fx._symbolic_trace.is_fx_symbolic_tracing()


def run_while_tracing(function: Callable[[], None]) -> Callable[[], None]:
    """Return a function that dynamo runs, and does not trace.

    ``torch.compiler.assume_constant_result`` does the same, but imports dynamo, which takes a second.

    >>> run_while_tracing(lambda: None)()
    """

    def run() -> None:
        function()

    run._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return run


def read_node_source(written: dict[str, Any]) -> Any:
    """Return the ``NodeSource`` that its ``to_dict`` gave; the constructor wants the node itself.

    >>> read_node_source({"pass_name": "p", "action": "create", "name": "y", "target": "t", "graph_id": 0}).name
    'y'
    """
    return NodeSource._from_dict(written)
