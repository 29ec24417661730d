"""The module call graph: the hierarchy, the pytrees of the root, and the call signatures that were preserved.

One idea: what a preserved call takes and gives stands in the graph, as the arguments of two border nodes; here they become
names again, those of the made nodes.
"""

from __future__ import annotations

from torch.export import ModuleCallEntry, ModuleCallSignature

from ...ir.arguments import Arg
from ...ir.borders import GIVES, TAKES, is_border
from ...ir.node import Frame
from ...ir.program import Program
from ...ir.signature import GIVEN, UserInput
from ...ir.torch_private import pytree
from .graphs import Made
from .signature import argument

__all__ = ["module_calls"]


def module_calls(program: Program, root: Made) -> list[ModuleCallEntry]:
    """Return the entries of all modules in their order, then those of further calls with a signature of their own.

    Args:
        program: the program.
        root: its graph.
    """
    signatures = _preserved(program, root)
    entries = [ModuleCallEntry("", _root_signature(program))]
    for module in program.modules:
        if module.path:
            entries.append(ModuleCallEntry(module.path, signatures.pop(module.path, None)))
    return [*entries, *[ModuleCallEntry(name, signature) for name, signature in signatures.items()]]


def _root_signature(program: Program) -> ModuleCallSignature:
    signature = program.signature
    in_spec, out_spec, names = signature.in_spec, signature.out_spec, list(signature.arg_names)
    if in_spec is None:
        users = sum(type(spec) is UserInput for spec in signature.inputs)
        in_spec = pytree.tree_structure(((0,) * users, {}))
    if out_spec is None:
        given = sum(type(spec) in GIVEN for spec in signature.outputs)
        out_spec = pytree.tree_structure((0,) * given)
    if not names and program.constraints.guards:
        args, kwargs = in_spec.children()  # guards name the arguments that they speak of
        names = [*[f"arg_{index}" for index in range(args.num_children)], *map(str, kwargs.context or ())]
    return ModuleCallSignature([], [], in_spec, out_spec, names or None)


def _preserved(program: Program, root: Made) -> dict[str, ModuleCallSignature]:
    borders: dict[Frame, dict[str, tuple[Arg, ...]]] = {}
    for node in program.main.nodes:
        if is_border(node) and node.stack:
            borders.setdefault(node.stack[-1], {})[node.do.name] = node.args  # type: ignore[union-attr]
    found: dict[str, ModuleCallSignature] = {}
    for frame, leaves in borders.items():
        told = program.call_signatures.get(frame)
        if told is not None and len(leaves) == len((TAKES, GIVES)):
            names = list(told.arg_names) or None
            inputs, outputs = ([argument(root.leaf(arg)) for arg in leaves[op.name]] for op in (TAKES, GIVES))
            found[_fqn(frame)] = ModuleCallSignature(inputs, outputs, told.in_spec, told.out_spec, names)
    return found


def _fqn(frame: Frame) -> str:
    return f"{frame.path}@{frame.call}" if frame.call else frame.path
