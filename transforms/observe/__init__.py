"""``observe``: add the outputs of inner modules to the outputs of a program.

Values of a flat program are accessible everywhere, so a tree is inlined, observed and outlined again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import evolve, frozen

from ...ir.analysis.history import made_of_value
from ...ir.arguments import Arg, Ref
from ...ir.calls.call_graph import path_around
from ...ir.calls.parts import part_names
from ...ir.effects.resolved import program_effects
from ...ir.errors import NamingError, UnsupportedProgram
from ...ir.graph import Get, Node, Op, Stack
from ...ir.names import did_you_mean, is_below, join
from ...ir.operators import CLONE
from ...ir.own_operators import GIVES, TAKES
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import StateMutation, UserOutput
from ...ir.torch_private import pytree
from ...ir.validation import a_program
from ..cleanup import infer
from ..effect_tokens import remove_effect_tokens
from ..inline import inline
from ..insert_ivals import insert_ivals
from ..mutations import inplace_mutations
from ..outline.extraction import Scope, Walk
from ..outline.merged import outlined_like
from ..outline.outline import walked
from ..state import sink_state


@frozen
class Observed:
    """One observed call."""

    name: str
    """The path of the module; with ``@1`` for its second call."""
    scope: Scope
    leaves: tuple[Arg, ...]
    """The leaves of its result if its call signature is preserved, else the values that the rest of the program uses."""
    out_spec: Any = None
    """The structure of the leaves, if known."""


def observe(program: Program, paths: str | Sequence[str]) -> Program:
    """Add the outputs of inner modules to the outputs of a program: ``(result, {path: value})``.

    Before::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z,)

    After ``observe(program, "up")``::

        graph ""           y = call up(x) as up;  z = call down(y) as down;  return (z, y)      # (z, {"up": y})

    A module that was exported with ``preserve_module_call_signature`` returns the result of its ``forward``, in its structure.
    Any other module returns its values that the rest of the program uses, as a tuple if there are several: a trace does not
    contain its result.  An argument that an operator of the module returns (``mul_``, or ``to`` that converts nothing), and
    new contents of state that it writes or assigns, are among them, if they are used afterwards.  In a program that writes,
    tensors are copied when the call returns; otherwise they are shared, as in a forward hook.  Further calls of a module are
    ``path@1``, ``path@2`` ..., in the order of the calls.

    Laws: results and writes of the program do not change; the observed values are those of a forward hook in eager mode.

    Args:
        program: flat, or a tree with shared bodies; not split.
        paths: globs of module paths, such as ``layers.*.mlp``.

    Returns:
        The program with further outputs, flat or a tree as before; state is read and written in place.

    Raises:
        NamingError: a glob matches no called module, or only modules without a value.
        UnsupportedProgram: the program is split; a module is inside an operator, or inside a module with a preserved call
            signature; or intermediate state of a functional program would pass for an output of the module.
        TypeError: ``paths`` is not a glob or a sequence of globs.

    >>> import torch, purefx as px
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU())
    >>> program = px.transform(px.import_ep(torch.export.export(model, (torch.ones(1, 2),))))
    >>> result, seen = px.lower(px.observe(program, "0"))(torch.ones(1, 2))
    >>> result.shape, {path: tuple(value.shape) for path, value in seen.items()}
    (torch.Size([1, 3]), {'0': (1, 3)})
    """
    a_program(program, "observe", paths=paths)
    globs = _globs(paths)
    if part_names(program):
        raise UnsupportedProgram(
            "observe does not accept a split program: join it, observe it, and split it again"
        )
    if not any(program.graphs[name].called for name in program.order):
        program = insert_ivals(sink_state(inplace_mutations(remove_effect_tokens(program))))
    elif any(isinstance(spec, StateMutation) for spec in program.signature.outputs):
        raise UnsupportedProgram(
            "observe takes a tree whose state is written in place: observe the flat program, or the result of transform(program)"
        )
    flat = infer(inline(program))
    walk = walked(flat)
    nodes = [value for value in walk.values.values() if type(value) is Node]
    flat = flat.with_main(flat.main.with_nodes(nodes))
    return infer(outlined_like(program, _with_outputs(flat, _found(flat, walk, globs))))


def _globs(paths: Any) -> list[str]:
    globs: list[Any] = list(paths) if isinstance(paths, list | tuple) else [paths]
    if not all(isinstance(glob, str) for glob in globs):
        raise TypeError(
            f"observe takes globs of module paths, such as 'layers.*.mlp', not {paths!r}"
        )
    return globs


def _found(program: Program, walk: Walk, globs: Sequence[str]) -> list[Observed]:
    # The observed calls, in order of execution.
    counts: Counter[str] = Counter()
    used: set[str] = set()
    found: list[Observed] = []
    boundaries = {
        (node.stack, node.op_name): node.args for node in program.main.nodes if node.stack
    }
    for scope in walk.scopes[1:]:
        number, matching = (
            counts[scope.path],
            [glob for glob in globs if fnmatchcase(scope.path, glob)],
        )
        counts[scope.path] += 1
        if not matching:
            continue
        name, stack, signature = (
            f"{scope.path}@{number}" if number else scope.path,
            _stack_of(scope),
            None,
        )
        leaves: tuple[Arg, ...] = tuple(map(Ref, scope.outputs))
        if (stack, TAKES.name) in boundaries and (stack, GIVES.name) in boundaries:
            leaves, signature = (
                boundaries[stack, GIVES.name],
                program.call_signatures.get(stack[-1]),
            )
        if any(type(leaf) is Ref for leaf in leaves):
            for frame in stack[:-1]:
                if frame in program.call_signatures:
                    raise UnsupportedProgram(
                        f"observe: {name} is inside {frame.path}, whose call signature is preserved, so it returns nothing else; "
                        f"observe {frame.path}, or export without preserve_module_call_signature"
                    )
            used.update(matching)
            found.append(Observed(name, scope, leaves, signature and signature.out_spec))
    _check_globs(program, globs, used, counts)
    if "mutations in place" in program.facts:
        _check_versions(program, {one.scope.path: counts[one.scope.path] for one in found})
    return found


def _stack_of(scope: Scope | None) -> Stack:
    return (
        ()
        if scope is None or scope.frame is None
        else (*_stack_of(scope.parent), *scope.around, scope.frame)
    )


def _check_globs(
    program: Program, globs: Sequence[str], used: set[str], called: Mapping[str, int]
) -> None:
    hidden = dict(_hidden(program))
    paths = [*called, *filter(None, program.types)]
    for glob in globs:
        if lost := [path for path in hidden if fnmatchcase(path, glob)]:
            raise UnsupportedProgram(
                f"observe: {lost[0]} runs inside {hidden[lost[0]]}, whose body returns nothing else: "
                f"observe the module around it, and name the modules one by one"
            )
        if glob not in used and any(fnmatchcase(path, glob) for path in paths):
            raise NamingError(
                f"observe: {glob!r} is in the program, but has no value: its result is unused, it returns its input, "
                "or the exporter kept no trace of its call; observe the module around it"
            )
        if glob not in used:
            raise NamingError(
                f"observe: no called module matches {glob!r}{did_you_mean(glob, called)}"
            )


def _hidden(program: Program) -> Iterator[tuple[str, str]]:
    # Modules in the bodies of operators, with the operator.
    todo = [("", program.root, "")]
    while todo:
        path, graph, operator = todo.pop()
        for node in program.graphs[graph].nodes:
            if operator:
                yield from [(join(path, frame.path), operator) for frame in node.stack]
            if type(node.do) is Op:
                here = path_around(node, path)
                todo += [(here, body, node.op_name) for body in node.bodies]


def _check_versions(program: Program, counts: Mapping[str, int]) -> None:
    # In a program that was functional, each state between two writes is a separate value, and would pass for an output of the
    # module that wrote it.
    main = program.main
    for node in main.nodes:
        if not node.declared.writes or type(node.args[0]) is not Ref:
            continue
        read, where = main.by_name.get(node.args[0].name), path_around(node, "")
        for path, count in counts.items() if read is not None and type(read.do) is Get else ():
            slot = read.do.slot  # type: ignore[union-attr]
            if is_below(slot, path) and (count > 1 or not is_below(join(where, "x"), path)):
                others = "in several calls" if count > 1 else "outside of it as well"
                raise UnsupportedProgram(
                    f"observe: {path} writes {slot}, which is written {others}, so intermediate state would pass for an output "
                    f"of {path}: observe the program before run_decompositions"
                )


def _with_outputs(program: Program, found: Sequence[Observed]) -> Program:
    # The program with a dict of values by call, next to its result.
    edit, specs, extra = Rewriter(program.main), dict[str, Any](), list[Arg]()
    copies = any(
        effect.writes or effect.writes_slots
        for effects in program_effects(program).values()
        for effect in effects
    )
    for observed in found:
        if observed.name in specs:
            raise UnsupportedProgram(
                f"observe: a module and a call of another one are both named {observed.name}: rename it"
            )
        leaves, spec = (
            _copied(program, edit, observed) if copies else observed.leaves,
            observed.out_spec,
        )
        if spec is None:
            leaves = tuple([leaf for leaf in leaves if type(leaf) is Ref])
            spec = pytree.tree_structure(0 if len(leaves) == 1 else (0,) * len(leaves))
        specs[observed.name] = spec
        extra += leaves
    signature, main = program.signature, edit.graph()
    result = signature.out_spec
    if result is None:
        result = pytree.tree_structure(
            tuple(0 for output in signature.outputs if isinstance(output, UserOutput))
        )
    return program.with_main(
        evolve(main, output=(*main.output, *extra)),
        signature=evolve(
            signature,
            outputs=(*signature.outputs, *(UserOutput() for _ in extra)),
            out_spec=pytree.treespec_tuple([result, pytree.treespec_dict(specs)]),
        ),
    )


def _copied(program: Program, edit: Rewriter, observed: Observed) -> tuple[Arg, ...]:
    # Copies of tensors, made when the call returns.
    main, stack, leaves = program.main, _stack_of(observed.scope), list[Arg]()
    last = max(
        [number for number, node in enumerate(main.nodes) if node.stack[: len(stack)] == stack]
    )
    for leaf in observed.leaves:
        if type(leaf) is Ref and isinstance(main.metas[leaf.name].get("val"), torch.Tensor):
            meta = made_of_value(program, program.root, leaf.name)
            clone = Node(edit.names.fresh("clone"), CLONE, (leaf,), stack=stack[:-1], meta=meta)
            edit.after(last, clone)
            leaf = Ref(clone.name)
        leaves.append(leaf)
    return tuple(leaves)
