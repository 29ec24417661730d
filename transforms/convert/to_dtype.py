"""``to_dtype``: the program that exporting would give had the module been converted before, ``module.to(dtype)``.

State and inputs are converted, types of values are inferred again.  A trace does not tell a cast to ``float32`` from one to the
dtype of another tensor, nor a value from the cast that gave it back as it was: ``Casts`` decides by what operators demand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import CONTAINERS, Arg, Ref, bodies_in, children_of, with_children
from ...ir.calls.parts import part_names
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Call, Get, Graph, Input, Node, Op
from ...ir.inference import Interpreter, running
from ...ir.program import Program
from ...ir.signature import TensorType, UserInput
from ...ir.state import Slot, SlotKind, State
from ...ir.state_changes import as_plain, dressed, has_window, kind_of_state
from ...ir.torch_private import FakeTensor
from ..cleanup import infer
from ..deduplicate import deduplicate
from ..inline import inline
from ..outline import outline
from ..regions import is_check
from ..transformation import transformation

__all__ = ["said", "to_dtype"]

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

REINTERPRETS = frozenset({"aten.view.dtype"})
"""Operators to which a dtype says how to read memory, which is no cast."""

ONE_DTYPE = frozenset({
    "linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "vdot", "einsum", "bilinear", "addr",
    "conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "scaled_dot_product_attention", "index_put", "index_put_", "index_copy", "index_copy_", "lstm", "gru",
})  # fmt: skip
"""Operators of aten that refuse operands of several floating dtypes, though most of their fake kernels do not."""

NORMS = frozenset({"layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "batch_norm"})
"""Operators whose parameters may be wider than what they are given, and not narrower."""


class Casts:
    """Finds which casts give the new dtype: those that an operator behind them demands.

    Args:
        program: a flat program whose state and inputs have the new types; values behind them are worked out again.
        old: the dtype that it computed in.
        new: the dtype that state and inputs have now.
        follow: globs of modules or nodes whose casts give the new dtype.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> Casts(program, torch.float32, torch.float64, ()).run() is program
    True
    """

    def __init__(self, program: Program, old: torch.dtype, new: torch.dtype, follow: tuple[str, ...]) -> None:
        self.program = program
        self.old = old
        self.new = new
        self.follow = follow
        self.refusing: dict[tuple[str, str], list[str]] = {}
        """The operators that get both dtypes, with the operands that are of the old one."""
        self.owners: dict[str, list[tuple[str, Node]]] = {}
        """The nodes that run each body of an operator, with the graphs that they stand in."""
        for name, node in program.nodes():
            for body in bodies_in(node.args, node.kwargs):
                self.owners.setdefault(body, []).append((name, node))

    def run(self) -> Program:
        """Return the program with values, casts decided.

        Raises:
            UnsupportedProgram: an operator gets both dtypes, and no cast is before it.
        """
        changed = {(self.program.root, formal.name) for formal in self.program.main.inputs}
        changed |= {(name, node.name) for name, node in self.program.nodes() if type(node.do) is Get or is_check(node)}
        changed |= self._flip({(name, node.name) for name, node in self.program.nodes() if self._follows(node)})
        while True:
            self.program = Interpreter(self.program, frozenset(changed), lenient=True).program()
            self.refusing = {
                (name, node.name): wide for name, node in self.program.nodes() if (wide := self._too_wide(name, node))
            }
            if not self.refusing:
                return self.program
            changed = {
                cast for (graph, _), wide in self.refusing.items() for ref in wide if (cast := self._cast_before(graph, ref))
            }
            if not changed:
                raise self._refused()
            self._flip(changed)

    def _follows(self, node: Node) -> bool:
        names = (node.name, *(frame.path for frame in node.stack))
        return self._is_cast(node) and any(fnmatchcase(name, glob) for name in names for glob in self.follow)

    def _flip(self, casts: set[tuple[str, str]]) -> set[tuple[str, str]]:
        for name in {name for name, _ in casts}:
            graph = self.program.graphs[name]
            nodes = [self._flipped(node) if (name, node.name) in casts else node for node in graph.nodes]
            self.program = self.program.with_graphs({name: graph.with_nodes(nodes)})
        return casts

    def _flipped(self, node: Node) -> Node:
        return node.evolve(args=said(node.args, self.old, self.new), kwargs=said(node.kwargs, self.old, self.new))

    def _refused(self) -> UnsupportedProgram:
        (graph, name), wide = next(iter(self.refusing.items()))
        return UnsupportedProgram(
            f"{graph or 'the root'} / {name} gets {self.old} and {self.new}, and would refuse them, as in eager after "
            f"module.to({self.new}): {wide[0]!r} is {self.old}, and no cast is before it; convert what it is "
            "made of (a constant of the forward, for example), or keep the module that uses it"
        )

    def _too_wide(self, name: str, node: Node) -> list[str]:
        short = short_name(node.do.name) if type(node.do) is Op else ""
        if short not in ONE_DTYPE and short not in NORMS:
            return []
        metas = self.program.graphs[name].metas
        given = {ref: dtype_in(metas[ref]) for ref in node.refs()}
        wide = [ref for ref, dtype in given.items() if dtype is self.old] if self.new in given.values() else []
        return wide if short in ONE_DTYPE else [ref for ref in wide if ref == node.refs()[0]]

    def _cast_before(self, graph: str, name: str) -> tuple[str, str] | None:
        # The nearest one on any way to a value, through values of the old dtype; what refuses its own operands is settled first.
        todo, seen = [(graph, name)], {(graph, name)}
        for place, value in todo:
            node = self.program.graphs[place].by_name.get(value)
            if node is not None and self._is_cast(node):
                return place, value
            if (place, value) not in self.refusing:
                found = [each for each in self._made_of(place, node) if each not in seen]
                seen.update(found)
                todo += found
        return None

    def _made_of(self, place: str, node: Node | None) -> list[tuple[str, str]]:
        # The values of the old dtype that a value is made of, through bodies of operators.
        if node is None:
            found = [(outer, ref) for outer, owner in self.owners.get(place, ()) for ref in owner.refs()]
        else:
            found = [(place, ref) for ref in node.refs()]
            for inner in bodies_in(node.args, node.kwargs):
                found += [(inner, ref) for ref in self.program.graphs[inner].output_refs()]
        return [each for each in dict.fromkeys(found) if self._may_be_old(*each)]

    def _may_be_old(self, place: str, name: str) -> bool:
        val = self.program.graphs[place].metas[name].get("val")
        return not isinstance(val, torch.Tensor) or val.dtype is self.old

    def _is_cast(self, node: Node) -> bool:
        if type(node.do) is not Op or node.do.name in REINTERPRETS or is_check(node) or dtype_in(node.meta) is not self.old:
            return False
        return said((node.args, node.kwargs), self.old, self.new) != (node.args, node.kwargs)


def dtype_in(meta: Mapping[str, Any]) -> torch.dtype | None:
    """Return the floating dtype that meta says, or None.

    >>> dtype_in({"val": torch.ones(1)}), dtype_in({"val": torch.ones(1).int()})
    (torch.float32, None)
    """
    val = meta.get("val")
    return val.dtype if isinstance(val, torch.Tensor) and val.dtype in FLOATS else None


def short_name(name: str) -> str:
    """Return the name of an operator of aten without library and overload; "" for others.

    >>> short_name("aten.to.dtype"), short_name("toy.neg")
    ('to', '')
    """
    library, _, rest = name.partition(".")
    return rest.partition(".")[0] if library == "aten" else ""


def said(arg: Arg, old: torch.dtype, new: torch.dtype) -> Arg:
    """Return what is said of the old dtype, said of the new one.

    >>> said((1, torch.float32), torch.float32, torch.float64)
    (1, torch.float64)
    """
    if arg is old:
        return new
    return with_children(arg, [said(part, old, new) for part in children_of(arg)]) if type(arg) in CONTAINERS else arg


@transformation(
    proven=True,
    laws=[
        "it is the program of the converted module: it computes what `module.to(dtype)` does",
        "state that was tied, or shared memory, still does",
        "a program of that dtype is the same object",
    ],
)
def to_dtype(
    program: Program, dtype: torch.dtype, *, keep: str | Sequence[str] = (), follow: str | Sequence[str] = ()
) -> Program:
    """Convert floating point state and inputs, as ``module.to(dtype)`` before the export would have.

    Before::

        takes: user x: f32[4, 8];  parameter weight: f32[8, 8]
        w = get weight                                     # f32
        wide = aten.to.dtype(x, torch.float32)             # what follows is computed in single precision
        narrow = aten.to.dtype(wide, torch.float32)        # back to the dtype of x
        y = aten.linear.default(narrow, w)

    After ``to_dtype(program, torch.bfloat16)``::

        takes: user x: bf16[4, 8];  parameter weight: bf16[8, 8]
        w = get weight                                     # bf16
        wide = aten.to.dtype(x, torch.float32)
        narrow = aten.to.dtype(wide, torch.bfloat16)
        y = aten.linear.default(narrow, w)

    Parameters, buffers and user inputs of a floating dtype are converted; integers, complex numbers and constants that the
    ``forward`` made itself are not, as in eager.  Types of all other values follow.  In a trace ``x.float()`` and
    ``x.to(y.dtype)`` are one operator: a cast (or an operator that is told a dtype) stays, unless an operator behind it refuses
    operands of several dtypes; then the last one on the way gives the new dtype.  So a program without such casts computes what
    eager does, bit by bit; with them it may compute more in the old dtype than eager would: say ``follow``, or export the
    converted module, which also takes the branches of Python that ask for a dtype.  The largest and smallest numbers of the
    old dtype, which masks are filled with, become those of the new one where the result has that.

    Args:
        program: a program at any stage but split ones.
        dtype: a floating dtype.
        keep: globs of modules (``*.norm``) or names of state that keep their dtype.
        follow: globs of modules (``*.rotary_emb``) or names of nodes whose casts give the new dtype whatever is behind them.

    Returns:
        The converted program with its own state; a tree is one again, equal bodies shared.

    Raises:
        UnsupportedProgram: it holds modules as they are; tensors of which only some would be converted share memory; an operator
            would get two dtypes, and no cast before it can be meant.
        InvalidProgram: an operator refuses the types that it gets, as it would in eager.
        TypeError: the dtype is no floating one.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))
    >>> half = px.to_dtype(program, torch.bfloat16)
    >>> half.state["weight"].value.dtype, half.main.nodes[-1].meta["val"].dtype
    (torch.bfloat16, torch.bfloat16)
    >>> px.lower(half)(torch.ones(1, 2, dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise TypeError(f"to_dtype takes a floating dtype such as torch.bfloat16, not {dtype!r}")
    if part_names(program):
        raise UnsupportedProgram("to_dtype takes a program before it is split: join it, convert it, and split it again")
    state = _converted_state(program, dtype, _globs(keep))
    signature = evolve(program.signature, inputs=tuple([_converted_input(spec, dtype) for spec in program.signature.inputs]))
    if state is program.state and signature == program.signature:
        return program
    is_tree = any(type(node.do) is Call for _, node in program.nodes())
    flat = inline(program) if is_tree else program
    old = _dtype_of(program)
    flat = flat.evolve(state=state, signature=signature).with_graphs({name: _open(flat, name) for name in flat.order})
    found = infer(_settled(Casts(flat, old, dtype, _globs(follow)).run(), old, dtype))
    if not is_tree:
        return found
    tree = outline(found)
    tree = deduplicate(tree) if "deduplicated" in program.facts else tree
    return tree.with_graphs({name: program.graphs[name] for name in tree.order if _is_as_before(program, tree, name)})


def _is_as_before(before: Program, after: Program, name: str) -> bool:
    old, new = before.graphs.get(name), after.graphs[name]
    if old is None or old != new:
        return False
    return all(dtype_in(mine) is dtype_in(theirs) for mine, theirs in zip(old.metas.values(), new.metas.values(), strict=True))


def _globs(given: str | Sequence[str]) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in FLOATS


def _dtype_of(program: Program) -> torch.dtype:
    # What the program computes in: the floating dtype of most of its state, or of its inputs.
    state = Counter(slot.value.dtype for _, slot in program.state.pairs if _is_float(slot.value))
    types = [spec.type for spec in program.signature.inputs if isinstance(spec, UserInput)]
    inputs = Counter(each.dtype for each in types if isinstance(each, TensorType) and each.dtype in FLOATS)
    return next(iter((state or inputs).most_common(1)), (torch.float32, 0))[0]


def _converted_input(spec: Any, dtype: torch.dtype) -> Any:
    if isinstance(spec, UserInput) and isinstance(spec.type, TensorType) and spec.type.dtype in FLOATS:
        return evolve(spec, type=evolve(spec.type, dtype=dtype))
    return spec


def _converted_state(program: Program, dtype: torch.dtype, keep: tuple[str, ...]) -> State:
    slots = dict(program.state.pairs)
    if any(slot.kind is SlotKind.MODULE for slot in slots.values()):
        raise UnsupportedProgram("to_dtype cannot look into modules that a program holds as they are; convert before importing")
    kept = {slot.cell for name, slot in slots.items() if _is_kept(name, keep)}
    goes = {name for name, slot in slots.items() if slot.cell not in kept and _is_to_convert(slot, dtype)}
    if not goes:
        return program.state
    memories: dict[int, list[str]] = {}
    for name, slot in slots.items():
        memories.setdefault(slot.storage, []).append(name)
    made: dict[int, Any] = {}
    for names in memories.values():
        _convert({name: slots[name] for name in names}, goes, dtype, made)
    return State(
        program.state.order,
        program.state.slots.update({name: evolve(slots[name], value=made[slots[name].cell]) for name in goes}),
    )


def _is_kept(name: str, keep: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, glob) or fnmatchcase(name.rpartition(".")[0], glob) for glob in keep)


def _is_to_convert(slot: Slot, dtype: torch.dtype) -> bool:
    return slot.kind is not SlotKind.CONSTANT and _is_float(slot.value) and slot.value.dtype is not dtype


def _convert(slots: dict[str, Slot], goes: set[str], dtype: torch.dtype, made: dict[int, Any]) -> None:
    # The tensors of one memory.
    cells = {slot.cell: slot.value for slot in slots.values()}
    chosen = {slots[name].cell for name in slots if name in goes}
    if not chosen:
        return
    if len(cells) > 1 and (len({value.dtype for value in cells.values()}) > 1 or chosen != set(cells)):
        raise UnsupportedProgram(
            f"{', '.join(map(repr, slots))} share memory, and to_dtype would convert only some of them; keep all of them, or none"
        )
    whole = None
    for cell, value in cells.items():
        plain = as_plain(value) if has_window(value) else value.detach()
        if len(cells) == 1:
            plain = _cast(next(iter(slots)), plain, dtype)
        else:
            if whole is None:
                count = plain.untyped_storage().nbytes() // plain.element_size()
                whole = torch.as_strided(plain, (count,), (1,), 0).to(dtype)
            plain = torch.as_strided(whole, plain.shape, plain.stride(), plain.storage_offset())
        made[cell] = dressed(plain, value, {})


def _cast(name: str, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    try:
        made = value.to(dtype)
    except (RuntimeError, TypeError) as error:
        raise _unconvertible(name, value, f"{type(error).__name__}: {str(error)[:200]}") from error
    if type(made) is not type(value):
        raise _unconvertible(name, value, f"its .to gives a {kind_of_state(made)}")
    return made


def _unconvertible(name: str, value: torch.Tensor, fault: str) -> UnsupportedProgram:
    said = f"the state {name!r} is a {kind_of_state(value)}, which to_dtype cannot convert ({fault})"
    return UnsupportedProgram(f"{said}; name it in keep=, or convert the module before exporting it")


def _open(program: Program, name: str) -> Graph:
    # Inputs have their new types, checks of types are filled in again when all types are known.
    graph = _without_identities(program.graphs[name])
    inputs, nodes = graph.inputs, [_with_dtype(node, None) if is_check(node) else node for node in graph.nodes]
    if name == program.root:
        specs = [spec for _, spec in program.inputs]
        inputs = tuple([_typed(formal, spec, program) for formal, spec in zip(inputs, specs, strict=True)])
    return graph.with_nodes(nodes, inputs=inputs)


def _without_identities(graph: Graph) -> Graph:
    # A cast that gave its operand back is one tensor with it: where the trace uses the cast outside of the module call that made
    # it, and the call itself uses it, others were given the operand.
    said, instead = graph.metas, dict[str, dict[str, Ref]]()
    for node in graph.nodes:
        if type(node.do) is not Op or short_name(node.do.name) != "to" or not node.stack:
            continue
        [operand, *_] = node.refs()
        before = dtype_in(said[operand])
        users = [graph.by_name[user] for user in graph.users.get(node.name, ())]
        outside = [user for user in users if user.stack[: len(node.stack)] != node.stack]
        if before is not None and before is dtype_in(node.meta) and 0 < len(outside) < len(users):
            for user in outside:
                instead.setdefault(user.name, {})[node.name] = Ref(operand)
    return graph.with_nodes([node.using(instead[node.name]) if node.name in instead else node for node in graph.nodes])


def _typed(formal: Input, spec: Any, program: Program) -> Input:
    val = formal.meta.get("val")
    if not isinstance(val, FakeTensor) or not val.is_floating_point():
        return formal
    if isinstance(spec, UserInput):
        wanted = spec.type.dtype if isinstance(spec.type, TensorType) else val.dtype
    else:
        slot = program.state.slots.get(getattr(spec, "slot", ""))
        wanted = slot.value.dtype if slot is not None and isinstance(slot.value, torch.Tensor) else val.dtype
    if val.dtype is wanted:
        return formal
    with running(val.fake_mode):
        made = val.to(wanted)
    return evolve(formal, meta={**formal.meta, "val": made})


def _with_dtype(node: Node, dtype: torch.dtype | None) -> Node:
    # The dtype of a check is its fourth operand, or goes by name.
    args = (*node.args[:3], dtype, *node.args[4:]) if len(node.args) > 3 else node.args
    kwargs = tuple([(key, dtype if key == "dtype" else value) for key, value in node.kwargs])
    return node.evolve(args=args, kwargs=kwargs)


def _settled(program: Program, old: torch.dtype, new: torch.dtype) -> Program:
    # Checks say the dtypes that are there; what is as large as the old dtype can be is as large as the new one can be.
    limits = {getattr(torch.finfo(old), end): getattr(torch.finfo(new), end) for end in ("min", "max")}
    graphs: dict[str, Graph] = {}
    for name in program.order:
        graph = program.graphs[name]
        metas, nodes = graph.metas, list[Node]()
        for node in graph.nodes:
            if is_check(node):
                [ref] = node.refs()[:1]
                val = metas[ref].get("val")
                node = _with_dtype(node, val.dtype if isinstance(val, torch.Tensor) else None)
            elif dtype_in(node.meta) is new:
                args, kwargs = _limited((node.args, node.kwargs), limits)
                node = node.evolve(args=args, kwargs=kwargs)
            nodes.append(node)
        graphs[name] = graph.with_nodes(nodes)
    return program.with_graphs(graphs)


def _limited(arg: Any, limits: dict[float, float]) -> Any:
    if type(arg) is float:
        return limits.get(arg, arg)
    return with_children(arg, [_limited(part, limits) for part in children_of(arg)]) if type(arg) in CONTAINERS else arg
