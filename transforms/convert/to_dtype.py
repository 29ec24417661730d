"""``to_dtype``: convert a program as if ``module.to(dtype)`` had been called before the export.

State and inputs are converted, and the types of values inferred again.  A trace does not distinguish a cast to ``float32`` from
one to the dtype of another tensor, and omits casts without effect; ``Casts`` decides by the types that operators require.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

import torch
from attrs import evolve

from ...ir.arguments import Ref, bodies_in, map_leaves, refs_in
from ...ir.calls.parts import part_names
from ...ir.errors import UnsupportedProgram
from ...ir.graph import Get, Graph, Node, Op, place_of
from ...ir.inference import Interpreter, disagreement_of_bodies
from ...ir.names import FROM_ROOT
from ...ir.persistent import grouped
from ...ir.program import Program
from ...ir.rewriter import Rewriter
from ...ir.signature import Signature, StateInput, TensorType, UserInput
from ...ir.state import SlotKind, State
from ...ir.state_changes import as_plain, dressed, has_window, kind_of_state
from ..cleanup import infer
from ..dispatch import is_check, with_true_checks
from ..inline import inline
from ..outline.merged import outlined_like
from ..transformation import transformation

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)

REINTERPRETS = frozenset({"aten.view.dtype"})
"""Operators whose dtype argument reinterprets memory instead of casting."""

ONE_DTYPE = frozenset({
    "linear", "matmul", "mm", "bmm", "mv", "dot", "vdot", "addmm", "addmv", "addbmm", "baddbmm",
    "einsum", "bilinear", "complex", "polar", "cross", "linalg_cross", "cdist", "heaviside",
    "conv1d", "conv2d", "conv3d", "convolution",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "index_add", "index_copy", "index_put", "index_reduce", "put",
    "_index_put_impl", "_unsafe_index_put", "_unsafe_masked_index_put_accumulate",
    "embedding_bag", "_embedding_bag", "fractional_max_pool3d",
    "grid_sampler", "grid_sampler_2d", "grid_sampler_3d", "multi_margin_loss",
    "nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward", "nll_loss2d_forward",
    "lstm", "gru", "rnn_tanh", "rnn_relu",
    "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_weight_norm", "_weight_norm_interface",
    "_softmax_backward_data", "_log_softmax_backward_data",
    "_native_multi_head_attention", "_transformer_encoder_layer_fwd",
})  # fmt: skip
"""Operators of aten that refuse operands of several floating dtypes.

Most of their fake kernels accept them.  Operators whose fake kernels refuse them, too (``scatter``,
``lerp``), need not be listed.
"""

SOME_OPERANDS = {
    "_scaled_dot_product_flash_attention_for_cpu": (0, 1, 2),
    "binary_cross_entropy": (0, 1),
    "cross_entropy_loss": (0, 2),
}
"""Like ``ONE_DTYPE``, for the arguments at these positions; the others may have another dtype."""

NORMS = frozenset({
    "layer_norm", "native_layer_norm", "group_norm", "native_group_norm", "instance_norm",
    "batch_norm", "native_batch_norm", "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training", "_batch_norm_with_update",
})  # fmt: skip
"""Operators whose parameters may all be in single precision if their input is in half precision."""

HALVES = (torch.float16, torch.bfloat16)


class Casts:
    """Finds the casts that return the new dtype: those that a later operator requires.

    Args:
        program: a flat program whose state and inputs have the new types; other types are inferred.
        olds: the dtypes that converted state and inputs had.
        new: the new dtype of state and inputs.
        follow: globs of modules or nodes whose casts return the new dtype.

    >>> from purefx.ir import Graph
    >>> program = Program.of({"": Graph((), (), ())})
    >>> Casts(program, frozenset({torch.float32}), torch.float64, ()).run() is program
    True
    """

    def __init__(
        self,
        program: Program,
        olds: frozenset[torch.dtype],
        new: torch.dtype,
        follow: tuple[str, ...],
    ) -> None:
        self.program, self.olds, self.new, self.follow = program, olds, new, follow
        self.refusing: dict[tuple[str, str], list[str]] = {}
        """The operators that refuse their operands, with those that do not have the new dtype."""
        pairs = [
            (body, (name, node))
            for name, node in program.nodes()
            for body in bodies_in(node.args, node.kwargs)
        ]
        self.owners = grouped(pairs)
        """The nodes that run each body of an operator, with their graphs."""

    def run(self) -> Program:
        """Return the program with decided casts and inferred values.

        Raises:
            UnsupportedProgram: an operator refuses the dtypes of its operands, and no cast before
                it could be changed.
        """
        nodes = list(self.program.nodes())
        changed = {(self.program.root, formal.name) for formal in self.program.main.inputs}
        changed |= {
            (name, node.name) for name, node in nodes if type(node.do) is Get or is_check(node)
        }
        changed |= self._flip({(name, node.name) for name, node in nodes if self._follows(node)})
        while True:
            walk = Interpreter(self.program, frozenset(changed))
            self.program = walk.program(lenient=True)
            found = [
                ((name, node.name), self._refused_operands(name, node, walk))
                for name, node in self.program.nodes()
            ]
            self.refusing = {place: refs for place, refs in found if refs}
            if not self.refusing:
                return self.program
            pairs = [(graph, ref) for (graph, _), refs in self.refusing.items() for ref in refs]
            casts = {cast for pair in pairs if (cast := self._cast_before(*pair))}
            if not casts:
                raise self._refused()
            changed = self._flip(casts)

    def _is_cast(self, node: Node) -> bool:
        if (
            type(node.do) is not Op
            or node.do.name in REINTERPRETS
            or is_check(node)
            or dtype_in(node.meta) not in self.olds
        ):
            return False
        return self._converted(node) is not node

    def _converted(self, node: Node) -> Node:
        old = dtype_in(node.meta)
        args, kwargs = map_leaves(
            (node.args, node.kwargs), lambda leaf: self.new if leaf is old else leaf
        )
        return node.evolve(args=args, kwargs=kwargs)

    def _follows(self, node: Node) -> bool:
        names = (node.name, *(frame.path for frame in node.stack))
        return self._is_cast(node) and any(
            fnmatchcase(name, glob) for name in names for glob in self.follow
        )

    def _flip(self, casts: set[tuple[str, str]]) -> set[tuple[str, str]]:
        for name in {name for name, _ in casts}:
            graph = self.program.graphs[name]
            nodes = [
                self._converted(node) if (name, node.name) in casts else node
                for node in graph.nodes
            ]
            self.program = self.program.with_graphs({name: graph.with_nodes(nodes)})
        return casts

    def _refused(self) -> UnsupportedProgram:
        (graph, name), refs = next(iter(self.refusing.items()))
        node, operand = self.program.graphs[graph].by_name[name], refs[0]
        dtype = dtype_in(self.program.graphs[graph].metas[operand])
        others = [found for _, found in self._dtypes(graph, node) if found is not dtype]
        user = f" ({node.stack[-1].path!r})" if node.stack else ""
        return UnsupportedProgram(
            f"{graph or 'the root'} / {name} would get {dtype} and {others[0]}, which it refuses: "
            f"{operand!r} is {dtype}{self._reason(graph, operand)}, "
            f"or keep the module that uses it{user}"
        )

    def _reason(self, graph: str, operand: str) -> str:
        # Why an operand does not have the new dtype, and which cast helps.
        state, program = self.program.state, self.program
        lifted = {
            (program.root, formal.name): spec.slot
            for formal, spec in program.inputs
            if isinstance(spec, StateInput)
        }
        slots = dict[str, None]()
        for place, value in self._origins(graph, operand):
            node = program.graphs[place].by_name.get(value)
            reads = node.do.slot if node and type(node.do) is Get else lifted.get((place, value))
            if reads is not None:
                slots[reads.removeprefix(FROM_ROOT)] = None
        constants = [name for name in slots if state[name].kind is SlotKind.CONSTANT]
        kept = [name for name in slots if name not in constants]
        if kept:
            names = ", ".join(map(repr, kept[:3]))
            return (
                f", because keep= keeps {names}; cast it, or the result that it goes into, in the "
                "model, as in `y.to(x.dtype)`"
            )
        if constants:
            return (
                f", because the forward makes the constant {constants[0]!r} in that dtype; register "
                "it as a buffer, or cast it in the model, as in `constant.to(x.dtype)`"
            )
        return " without a cast before it; cast it in the model, as in `y.to(x.dtype)`"

    def _dtypes(self, name: str, node: Node) -> list[tuple[str, torch.dtype]]:
        # The floating operands that have to agree, with their dtypes.
        positions = SOME_OPERANDS.get(short_name(node))
        chosen = (
            node.refs()
            if positions is None
            else refs_in(tuple(node.args[i] for i in positions if i < len(node.args)))
        )
        metas = self.program.graphs[name].metas
        pairs = [(ref, dtype_in(metas[ref])) for ref in chosen]
        return [(ref, dtype) for ref, dtype in pairs if dtype is not None]

    def _refused_operands(self, name: str, node: Node, walk: Interpreter) -> list[str]:
        # The operands without the new dtype of an operator that refuses their dtypes.
        pairs = self._dtypes(name, node)
        if len({dtype for _, dtype in pairs}) < 2:
            return []
        short, dtypes = short_name(node).removesuffix("_"), [dtype for _, dtype in pairs]
        refuses = short in ONE_DTYPE or short in SOME_OPERANDS or (name, node.name) in walk.refusals
        if short in NORMS:
            refuses = dtypes[0] not in HALVES or {*dtypes[1:]} != {torch.float32}
        return [ref for ref, dtype in pairs if dtype is not self.new] if refuses else []

    def _cast_before(self, graph: str, name: str) -> tuple[str, str] | None:
        # The nearest one on a path to a value through values of its dtype.
        for place, value in self._origins(graph, name):
            node = self.program.graphs[place].by_name.get(value)
            if node is not None and self._is_cast(node):
                return place, value
        return None

    def _origins(self, graph: str, name: str) -> Iterator[tuple[str, str]]:
        # The values that give a value its dtype, the nearest first.  Operators that refuse their
        # operands are settled before those that use their results.
        dtype = dtype_in(self.program.graphs[graph].metas[name])
        todo, seen = [(graph, name)], {(graph, name)}
        for place, value in todo:
            yield place, value
            node = self.program.graphs[place].by_name.get(value)
            if (place, value) not in self.refusing:
                found = [each for each in self._made_of(place, node, dtype) if each not in seen]
                seen.update(found)
                todo += found

    def _made_of(
        self, place: str, node: Node | None, dtype: torch.dtype | None
    ) -> list[tuple[str, str]]:
        # The operands of a value that have a dtype, or no known one, through bodies of operators.
        if node is None:
            found = [
                (outer, ref) for outer, owner in self.owners.get(place, ()) for ref in owner.refs()
            ]
        else:
            inside = [
                (body, ref)
                for body in bodies_in(node.args, node.kwargs)
                for ref in self.program.graphs[body].output_refs()
            ]
            found = [*((place, ref) for ref in node.refs()), *inside]
        vals = {each: self.program.graphs[each[0]].metas[each[1]].get("val") for each in found}
        return [
            each
            for each, val in vals.items()
            if not isinstance(val, torch.Tensor) or val.dtype is dtype
        ]


def dtype_in(meta: Mapping[str, Any]) -> torch.dtype | None:
    """Return the floating dtype of the value that meta describes, or None.

    >>> dtype_in({"val": torch.ones(1)}), dtype_in({"val": torch.ones(1).int()})
    (torch.float32, None)
    """
    val = meta.get("val")
    return val.dtype if isinstance(val, torch.Tensor) and val.dtype in FLOATS else None


def short_name(node: Node) -> str:
    """Return the name of an operator of aten without library and overload; "" for other nodes.

    >>> short_name(Node("y", Op("aten.to.dtype"))), short_name(Node("y", Op("toy.neg")))
    ('to', '')
    """
    library, _, rest = (node.do.name if type(node.do) is Op else "").partition(".")
    return rest.partition(".")[0] if library == "aten" else ""


@transformation(
    proven=True,
    laws=[
        "it is the program of the converted module: it computes what `module.to(dtype)` does",
        "state that was tied, or shared memory, still does",
        "a program of that dtype is the same object",
    ],
)
def to_dtype(
    program: Program,
    dtype: torch.dtype,
    *,
    keep: str | Sequence[str] = (),
    follow: str | Sequence[str] = (),
) -> Program:
    """Convert floating-point state and inputs, as if ``module.to(dtype)`` had been called before the export.

    Before::

        takes: user x: f32[4, 8];  parameter weight: f32[8, 8]
        w = get weight                                     # f32
        wide = aten.to.dtype(x, torch.float32)             # computes in single precision
        narrow = aten.to.dtype(wide, torch.float32)        # back to the dtype of x
        y = aten.linear.default(narrow, w)

    After ``to_dtype(program, torch.bfloat16)``::

        takes: user x: bf16[4, 8];  parameter weight: bf16[8, 8]
        w = get weight                                     # bf16
        wide = aten.to.dtype(x, torch.float32)
        narrow = aten.to.dtype(wide, torch.bfloat16)
        y = aten.linear.default(narrow, w)

    Parameters, buffers and user inputs of a floating dtype are converted.  Integers and constants
    made in the ``forward`` are not, as in eager mode; state in float8 or of complex numbers is not
    either.  The types of other values are inferred.

    In a trace, ``x.float()`` and ``x.to(y.dtype)`` are the same operator: by default, a cast (or an
    operator with a dtype argument) is not changed.  If a later operator refuses operands of several
    dtypes, the last cast before it returns the new dtype.  So a program without such casts computes
    exactly as eager mode does.  With them it may compute more in the old dtype: pass ``follow``, or
    export the converted module, which also takes the branches of Python that depend on a dtype.
    The extreme values of the old dtypes, which fill masks, become those of the new one if the
    result has the new one.

    Args:
        program: a program at any stage, except split.
        dtype: a floating dtype.
        keep: globs of modules (``*.norm``) or names of state that keep their dtype.
        follow: globs of modules (``*.rotary_emb``) or names of nodes whose casts always get the new dtype.

    Returns:
        The converted program with new state; a tree is outlined again, with shared bodies.

    Raises:
        UnsupportedProgram: the program calls opaque modules; only some of several tensors that
            share memory would be converted; an operator would refuse the dtypes of its operands,
            and no cast before it could be changed.
        InvalidProgram: an operator refuses its new operands for another reason.
        TypeError: the dtype is not one of the four floating dtypes that torch computes in.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.Linear(2, 3), (torch.ones(1, 2),)))
    >>> half = px.to_dtype(program, torch.bfloat16)
    >>> half.state["weight"].value.dtype, half.main.nodes[-1].meta["val"].dtype
    (torch.bfloat16, torch.bfloat16)
    >>> px.lower(half)(torch.ones(1, 2, dtype=torch.bfloat16)).dtype
    torch.bfloat16
    """
    if dtype not in FLOATS:
        names = "torch.float64, torch.float32, torch.float16 or torch.bfloat16"
        raise TypeError(f"to_dtype takes a floating dtype: {names}, not {dtype!r}")
    if part_names(program):
        raise UnsupportedProgram(
            "to_dtype does not accept a split program: join it, convert it, and split it again"
        )
    state = _converted_state(program, dtype, _globs(keep))
    signature = evolve(
        program.signature,
        inputs=tuple([_converted_input(spec, dtype) for spec in program.signature.inputs]),
    )
    if state is program.state and signature == program.signature:
        return program
    flat = inline(program).evolve(state=state, signature=signature)
    flat = flat.with_graphs({name: _without_identities(flat.graphs[name]) for name in flat.order})
    olds = _converted_dtypes(program, state, signature)
    settled = _settled(Casts(flat, olds, dtype, _globs(follow)).run(), olds, dtype)
    inferred = infer(settled)
    _check_bodies(inferred)
    made = outlined_like(program, inferred)
    same = [
        name
        for name in made.order
        if name in program.graphs and _types(made.graphs[name]) == _types(program.graphs[name])
    ]
    return made.with_graphs(
        {name: program.graphs[name] for name in same if made.graphs[name] == program.graphs[name]}
    )


def _check_bodies(program: Program) -> None:
    # Branches with results of two dtypes, and loops whose carry changes its dtype, raise when they run.
    for name in program.order:
        for node in program.graphs[name].callers:
            difference = disagreement_of_bodies(node, program.graphs)
            if difference is not None:
                raise UnsupportedProgram(
                    f"{place_of(node)} would run bodies of two dtypes: {difference}. "
                    "Cast the other value in the model to the dtype of its operand, as in x.to(y.dtype)"
                )


def _types(graph: Graph) -> list[torch.dtype | None]:
    return list(map(dtype_in, graph.metas.values()))


def _globs(globs: str | Sequence[str]) -> tuple[str, ...]:
    return (globs,) if isinstance(globs, str) else tuple(globs)


def _converted_dtypes(
    program: Program, state: State, signature: Signature
) -> frozenset[torch.dtype]:
    # The dtypes of state and inputs before they are converted.  A cast to one of them may follow
    # the dtype of another tensor.
    values = [slot.value for name, slot in program.state.pairs if state[name] is not slot]
    for spec, new in zip(program.signature.inputs, signature.inputs, strict=True):
        if spec is not new and isinstance(spec, UserInput):
            values.append(spec.type)
    return frozenset([value.dtype for value in values])


def _converted_input(spec: Any, dtype: torch.dtype) -> Any:
    if (
        isinstance(spec, UserInput)
        and isinstance(spec.type, TensorType)
        and spec.type.dtype in FLOATS
    ):
        return evolve(spec, type=evolve(spec.type, dtype=dtype))
    return spec


def _converted_state(program: Program, dtype: torch.dtype, keep: tuple[str, ...]) -> State:
    slots = dict(program.state.pairs)
    if any(slot.kind is SlotKind.MODULE for slot in slots.values()):
        raise UnsupportedProgram(
            "to_dtype cannot convert the opaque modules that a program calls; convert before importing"
        )
    kept = {slot.cell for name, slot in slots.items() for glob in keep
            if fnmatchcase(name, glob) or fnmatchcase(name.rpartition(".")[0], glob)}  # fmt: skip
    goes = {name: slot for name, slot in slots.items() if slot.cell not in kept and slot.kind is not SlotKind.CONSTANT
            and dtype_in({"val": slot.value}) not in (None, dtype)}  # fmt: skip
    if not goes:
        return program.state
    memories: dict[int, dict[int, torch.Tensor]] = {}
    for slot in slots.values():
        memories.setdefault(slot.storage, {})[slot.cell] = slot.value
    cells, made = {slot.cell for slot in goes.values()}, dict[int, Any]()
    for name, slot in goes.items():
        if slot.cell in made:
            continue
        shared = memories[slot.storage]
        if len(shared) == 1:
            made[slot.cell] = _cast(name, slot.value, dtype)
        elif shared.keys() <= cells and len({value.dtype for value in shared.values()}) == 1:
            made |= _cast_together(shared, dtype)
        else:
            names = ", ".join(
                [repr(name) for name, other in slots.items() if other.storage == slot.storage]
            )
            raise UnsupportedProgram(
                f"{names} share memory, but to_dtype would convert only some of them; keep all of them, or none"
            )
    changed = {name: evolve(slot, value=made[slot.cell]) for name, slot in goes.items()}
    return State(program.state.order, program.state.slots.update(changed))


def _cast_together(
    shared: Mapping[int, torch.Tensor], dtype: torch.dtype
) -> dict[int, torch.Tensor]:
    first = as_plain(next(iter(shared.values())))
    count = first.untyped_storage().nbytes() // first.element_size()
    whole = torch.as_strided(first, (count,), (1,), 0).to(dtype)
    views = {
        cell: torch.as_strided(whole, one.shape, one.stride(), one.storage_offset())
        for cell, one in shared.items()
    }
    return {cell: dressed(view, shared[cell], {}) for cell, view in views.items()}


def _cast(name: str, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    plain = as_plain(value) if has_window(value) else value.detach()
    try:
        made, reason = plain.to(dtype), ""
    except (RuntimeError, TypeError) as error:
        made, reason = value, f" ({type(error).__name__}: {str(error)[:200]})"
    if reason or type(made) is not type(plain):
        raise UnsupportedProgram(
            f"the state {name!r} is a {kind_of_state(plain)}, which to_dtype cannot convert{reason}; name it in keep=, or "
            "convert the module before exporting it"
        )
    return dressed(made, value, {})


def _without_identities(graph: Graph) -> Graph:
    # A cast to the same dtype returns its operand.  Users outside of the module call of the cast use the operand, if the call
    # itself uses the cast, too.
    metas, edit = graph.metas, Rewriter(graph)
    for node in graph.nodes:
        if short_name(node) != "to" or not node.stack or dtype_in(node.meta) is None:
            continue
        [operand, *_] = node.refs()
        users = graph.users.get(node.name, ())
        outside = [
            user for user in users if graph.by_name[user].stack[: len(node.stack)] != node.stack
        ]
        if dtype_in(metas[operand]) is dtype_in(node.meta) and 0 < len(outside) < len(users):
            for user in outside:
                edit.use(edit.position[user], node.name, Ref(operand))
    return edit.graph()


def _settled(program: Program, olds: frozenset[torch.dtype], new: torch.dtype) -> Program:
    # Extreme values of the old dtypes become those of the new one.
    limits = {
        getattr(torch.finfo(old), end): getattr(torch.finfo(new), end)
        for old in olds
        for end in ("min", "max")
    }
    graphs: dict[str, Graph] = {}
    for name in program.order:
        edit = Rewriter(program.graphs[name])
        for number, node in enumerate(edit.source.nodes):
            if dtype_in(node.meta) is new:
                pair = map_leaves(
                    (node.args, node.kwargs),
                    lambda leaf: limits.get(leaf, leaf) if type(leaf) is float else leaf,
                )
                edit.put(number, node.evolve(args=pair[0], kwargs=pair[1]))
        graphs[name] = edit.graph()
    return with_true_checks(program.with_graphs(graphs))
