"""How a traced graph module is called, and what it gives: from its placeholders, its output and the pytrees of its code.

One idea: the caller's view is rebuilt from what the graph says, so that a lowered module takes and gives what the traced one
does: defaults, the rest of the arguments, any pytree.  Types are not checked: a trace is valid for whatever it runs on.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.fx

from ..arguments import Arg, Items, Record
from ..binding import bind
from ..errors import InputError, InvalidProgram, UnsupportedProgram, Violation
from ..names import is_identifier
from ..signature import LiteralType, ObjectType, Signature, UserInput, UserOutput
from ..torch_private import EXPORT_HOOKS, PyTreeCodeGen, codegen_of, generator_of_code, hooks_of, pytree
from ..verify.kinds import PLAIN, short
from .signature import argument_paths
from .traced import parameters_of

__all__ = ["bound_example", "read_traced_signature", "taken_spec"]


def read_traced_signature(module: torch.fx.GraphModule, output: Arg, out_spec: Any = None) -> tuple[Signature, tuple[Arg, ...]]:
    """Return the signature of a traced graph module, and what its root graph gives back, flat.

    Args:
        module: the graph module.
        output: what its graph gives back, as it was read.
        out_spec: the pytree of its leaves, where something other than the code of the graph knows it.

    Raises:
        InvalidProgram: an argument has a name that no function can have.
        UnsupportedProgram: something around the graph does what the graph does not show.
    """
    codegen = generator_of_code(module)
    if codegen is None:
        maker = type(codegen_of(module.graph)).__name__
        raise UnsupportedProgram(
            f"the code of this graph is made by {maker}, which does what the graph does not show; call "
            f"graph.set_codegen(torch.fx.graph.CodeGen()) if the graph is all that is meant{_REPLAYED.get(maker, '')}"
        )
    for hook in hooks_of(module):
        if getattr(hook, "__module__", None) != EXPORT_HOOKS:
            raise UnsupportedProgram("the module has forward hooks, which the graph does not show; remove them first")
    if "forward" in module.__dict__:
        raise UnsupportedProgram("the module has a forward of its own, which the graph does not show; remove it first")
    info = codegen.pytree_info if isinstance(codegen, PyTreeCodeGen) else None
    inputs, in_spec, names = _plain_inputs(module) if info is None else _nested_inputs(module, info)
    out_spec = out_spec if info is None else info.out_spec
    if out_spec is not None:
        leaves = tuple(output) if isinstance(output, tuple) else (output,)
    else:
        leaves, out_spec = _taken_apart(output)
    return Signature(inputs, (UserOutput(),) * len(leaves), in_spec, out_spec, names), leaves


_REPLAYED = {
    "_DynamoBytecodeCodeGen": ": first keep inputs = graph_module._dynamo_bytecode_flatten(*args), what the graph takes, "
    "and afterwards restore_names(program, module, inputs=inputs) makes state of those that are tensors of the module",
}
"""What else to do where Dynamo's bytecode is replayed around a graph."""


def _plain_inputs(module: torch.fx.GraphModule) -> tuple[tuple[UserInput, ...], Any, tuple[str, ...]]:
    inputs: list[UserInput] = []
    for parameter in parameters_of(module):
        default = LiteralType(_frozen(parameter.default[0], parameter.name)) if parameter.default else None
        inputs.append(UserInput(parameter.rest or ObjectType(), parameter.name, default))
    in_spec = pytree.tree_structure((tuple(range(len(inputs))), {}))
    return tuple(inputs), in_spec, tuple([spec.argument for spec in inputs])


def _nested_inputs(module: torch.fx.GraphModule, info: Any) -> tuple[tuple[UserInput, ...], Any, tuple[str, ...]]:
    in_spec = taken_spec(info)
    names = tuple([name for name in info.orig_args if name != "self"])
    by_name = in_spec.type is tuple and in_spec.num_children == 2 and _is_call(in_spec)
    if not by_name:
        in_spec = pytree.tree_structure((tuple(pytree.tree_unflatten([0] * in_spec.num_leaves, in_spec)), {}))
    keywords = list(in_spec.child(1).context or ())
    _check_names([*names, *keywords])
    count = sum(fx_node.op == "placeholder" for fx_node in module.graph.nodes)
    if count != in_spec.num_leaves:
        said = f"its code takes {in_spec.num_leaves} leaves, the graph has {count} placeholders"
        raise InvalidProgram([Violation("signature-leaves", said, advice="change the pytree of the code with the placeholders")])
    paths = argument_paths(in_spec, names)
    return tuple([UserInput(ObjectType(), path) for path in paths]), in_spec, names


def taken_spec(info: Any) -> Any:
    """Return the pytree of what the code of a graph takes, without the module that ``symbolic_trace`` notes first.

    Args:
        info: what the code of the graph knows of pytrees.
    """
    in_spec = info.in_spec
    if in_spec.type is not tuple or list(info.orig_args[:1]) != ["self"] or in_spec.num_children != len(info.orig_args):
        return in_spec
    return pytree.tree_structure(tuple([pytree.tree_unflatten([0] * spec.num_leaves, spec) for spec in in_spec.children()[1:]]))


def _is_call(in_spec: Any) -> bool:
    return in_spec.child(0).type is tuple and in_spec.child(1).type is dict


def _check_names(names: list[Any]) -> None:
    for name in names:
        if not is_identifier(name):
            said = f"{short(name)} can not be the name of an argument"
            raise InvalidProgram([Violation("names", said, advice="an argument is an identifier and no keyword of Python")])


def _frozen(value: Any, name: str) -> Arg:
    if type(value) is tuple:
        return tuple([_frozen(part, name) for part in value])
    if isinstance(value, list):
        return Items([_frozen(part, name) for part in value])
    if isinstance(value, dict):
        return Record(tuple([(_frozen(key, name), _frozen(part, name)) for key, part in value.items()]))
    if type(value) in PLAIN:
        return value
    raise UnsupportedProgram(f"the default of the argument {name} is {short(value)}, no literal; pass it in each call")


class _Leaf:
    """Stands for a value in a pytree, whatever the value is."""

    def __init__(self, arg: Arg) -> None:
        self.arg = arg


def _taken_apart(output: Arg) -> tuple[tuple[Arg, ...], Any]:
    leaves, spec = pytree.tree_flatten(_nested(output))
    return tuple([leaf.arg for leaf in leaves]), spec


def _nested(arg: Arg) -> Any:
    kind = type(arg)
    if kind is Items:
        return [_nested(part) for part in arg]
    if kind is tuple:
        return tuple([_nested(part) for part in arg])
    if kind is Record and all(isinstance(key, str | int) for key, _ in arg.items):
        return {key: _nested(part) for key, part in arg.items}
    return _Leaf(arg)


def bound_example(module: torch.fx.GraphModule, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return what each placeholder of a graph module is given by a call.

    Raises:
        InputError: the module does not take these arguments.

    >>> bound_example(torch.fx.symbolic_trace(torch.nn.ReLU()), (), {"input": 3})
    [3]
    """
    codegen = generator_of_code(module)
    if not isinstance(codegen, PyTreeCodeGen):
        return list(bind(parameters_of(module), args, kwargs).values())
    found, spec = pytree.tree_flatten((args, kwargs))
    wanted = taken_spec(codegen.pytree_info)
    if wanted.num_leaves != spec.num_leaves:
        raise InputError(f"the graph takes {wanted.num_leaves} leaves, the example has {spec.num_leaves}")
    return found
