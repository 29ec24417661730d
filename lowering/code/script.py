"""``to_script``: write a program as a Python script that needs only torch: graph, state, arguments, and a pass to test.

Use it in an issue of a project that does not use this library.  Names of a program are written as strings, or as
variables where they are identifiers; they never become code.  Literals of known types are written; others are refused.
The source of ``attach``, ``observed``, ``differences`` and ``unequal`` is copied into the script, so they use only torch.
"""

from __future__ import annotations

import inspect
import math
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

from ...ir.arguments import Arg, Body, Ref
from ...ir.callables import Method, op_name
from ...ir.errors import ArgumentError, UnsupportedProgram
from ...ir.graph import Get, Graph, Node, place_of
from ...ir.inference import FakeValues
from ...ir.names import Names, is_identifier
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.signature import LiteralType, NumberType, TensorType, UserInput, UserOutput
from ...ir.state import is_plain
from ...ir.state_changes import kind_of_state
from ...ir.tensors import NUMBERS, drawn, has_numbers
from ...ir.torch_private import OpOverload
from ...ir.validation import kind_of
from ...ir.verify import check
from ...transforms import inline, inplace_mutations, join, remove_effect_tokens, sink_state
from .source import code_of

UNCHANGED = '''def a_pass(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Replace this by the pass under test; it may modify its argument."""
    return gm
'''


def to_script(program: Program, *, rewrite: str = "", calls: int = 2) -> str:
    r"""Return a script that builds a program with torch alone, runs a pass on it, and prints the differences in its results.

    The script builds the graph node by node with ``torch.fx.Graph``, so it runs wherever torch is installed; the
    pass under test is the function ``a_pass``.  It exits with 1 if a result, an argument after the call or the state differs
    between the module and the transformed module in any of several calls.  Tensors of at most 64 numbers
    are written out, larger ones are replaced by random numbers; the arguments are those of ``px.laws.example_args`` for
    the seeds 0, 1 and so on.  Reduce the program first (``px.minimize``).

    Args:
        program: a program at any stage; in the script it is flat, reads its state by ``get_attr`` and writes in place.
        rewrite: the source of a function ``a_pass(gm)`` that returns a module; by default it returns its argument.
        calls: the number of calls to compare.

    Raises:
        UnsupportedProgram: an operator is not found by name, or state or arguments cannot be written as text.
        InvalidProgram: the program breaks invariants.
        ArgumentError: ``rewrite`` is not the source of such a function.

    >>> import purefx as px
    >>> program = px.import_ep(torch.export.export(torch.nn.ReLU(), (torch.ones(2),)))
    >>> print(*[line for line in px.to_script(program).splitlines() if "graph." in line], sep="\n")
        input = graph.placeholder('input')
        relu = graph.create_node("call_function", torch.ops.aten.relu.default, (input,), {}, 'relu')
        graph.output((relu,))
    """
    if not isinstance(rewrite, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"rewrite must be the source of a function, not {kind_of(rewrite)}; pass inspect.getsource(a_pass)"
        )
    if rewrite and "def a_pass(" not in rewrite:
        raise ArgumentError(
            "rewrite must define the function that the script calls: def a_pass(gm): ... return gm"
        )
    flat = _flat(check(program, asked_by="to_script"))
    parts = [
        '"""A program, and the pass `a_pass` to test on it."""',
        IMPORTS,
        *[_body(flat, name) for name in reversed(flat.bottom_up)],
        _state(flat),
        _arguments(flat),
        rewrite or UNCHANGED,
        *map(_source, (drawn, attach, observed, differences, unequal)),
        MAIN.format(calls=calls),
    ]
    return parts[0] + "\n\n" + "\n\n\n".join([part.strip("\n") for part in parts[1:]]) + "\n"


IMPORTS = """from __future__ import annotations

import builtins
import copy
import math
import pkgutil
import operator
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx
"""

MAIN = """if __name__ == "__main__":
    module = program(state())
    try:
        expected = observed(copy.deepcopy(module), arguments, calls={calls})
    except Exception as error:
        print(f"the program itself raises {{type(error).__name__}}: {{error}}; change arguments()")
        sys.exit(2)
    copied = copy.deepcopy(module)
    rewritten = a_pass(copied) or copied
    found = differences(observed(rewritten, arguments, calls={calls}), expected)
    print("\\n".join(found) or "no difference")
    sys.exit(bool(found))
"""


ARGUMENTS = re.compile(r"\n\n    Args:\n.*?\n    (?=\"\"\")", re.DOTALL)


def _source(function: Callable[..., Any]) -> str:
    # The script has docstrings without arguments and examples.
    return ARGUMENTS.sub("", inspect.getsource(function), count=1)


def _flat(program: Program) -> Program:
    flat = sink_state(inplace_mutations(remove_effect_tokens(inline(join(program)))))
    for _, node in flat.nodes():
        if node.op_name.startswith("purefx.") and not is_boundary(node):
            raise UnsupportedProgram(
                f"{node.op_name} has no counterpart in torch.fx; reduce the program first, px.minimize(...)"
            )
    if any(type(spec) is not UserOutput for spec in flat.signature.outputs):
        raise UnsupportedProgram(
            "scripts of joint programs are not supported, as they return gradients or a loss; use the forward program"
        )
    return flat


# -- state ----------------------------------------------------------------------------------------------------------------------


def _state(program: Program) -> str:
    cells: dict[int, str] = {}
    storages: set[int] = set()
    lines: list[str] = []
    for name, slot in program.state.pairs:
        is_tied = slot.cell in cells
        if not is_plain(slot.value) or (slot.storage in storages and not is_tied):
            kind = (
                f"a {kind_of_state(slot.value)}"
                if not is_plain(slot.value)
                else "a view of other state"
            )
            raise UnsupportedProgram(f"the state {name!r} is {kind}, which a script cannot make")
        if not has_numbers(slot.value.dtype):
            raise UnsupportedProgram(
                f"the state {name!r} has dtype {slot.value.dtype}, whose contents torch does not convert to numbers, so a "
                "script cannot make it"
            )
        made = f"found[{cells[slot.cell]!r}]" if is_tied else _tensor_code(slot.value)
        lines.append(f"    found[{name!r}] = {made}")
        cells.setdefault(slot.cell, name)
        storages.add(slot.storage)
    head = [
        "def state() -> dict[str, torch.Tensor]:",
        "    draw = torch.Generator().manual_seed(0)  # noqa: F841",
    ]
    return "\n".join([*head, "    found: dict[str, torch.Tensor] = {}", *lines, "    return found"])


def _tensor_code(tensor: torch.Tensor) -> str:
    made = contents_code(tensor.detach())
    is_parameter = isinstance(tensor, torch.nn.Parameter)
    return (
        f"torch.nn.Parameter({made}, requires_grad={tensor.requires_grad})"
        if is_parameter
        else made
    )


# -- graphs ---------------------------------------------------------------------------------------------------------------------


RESERVED = (
    "attach", "bool", "builtins", "complex", "float", "graph", "list", "math", "operator", "range", "root", "slice", "tensors",
    "torch",
)  # fmt: skip
"""Names that the code of the script uses."""


def _body(program: Program, name: str) -> str:
    graph, ids = program.graphs[name], _function_names(program)
    variables, known = Names([*RESERVED, *ids.values()]), dict[str, str]()

    def new(value: str) -> str:
        known[value] = variables.fresh(value if is_identifier(value) else "value")
        return known[value]

    def leaf(arg: Arg) -> str:
        if type(arg) is Ref:
            return known[arg.name]
        if type(arg) is complex and not _is_kept_by_fx(arg):
            raise UnsupportedProgram(
                f"torch.fx does not write the complex number {arg!r} into its code; pass it as a tensor"
            )
        return f"graph.get_attr({ids[arg.graph]!r})" if type(arg) is Body else _literal(arg)

    lines = [f"def {ids[name]}(tensors: dict[str, torch.Tensor]) -> torch.fx.GraphModule:"]
    lines += [
        "    root = torch.nn.Module()",
        *_attributes(program, graph, ids),
        "    graph = torch.fx.Graph()",
    ]
    for formal in graph.inputs:
        made = new(formal.name)
        lines.append(f"    {made} = graph.placeholder({made!r})")
    for node in graph.nodes:
        if not is_boundary(node):
            lines.append(f"    {new(node.name)} = {_node(node, leaf)}")
    return "\n".join(
        [
            *lines,
            f"    graph.output({code_of(graph.output, leaf)})",
            "    return torch.fx.GraphModule(root, graph)",
        ]
    )


def _is_kept_by_fx(value: complex) -> bool:
    # torch.fx writes the repr, a sum: `nan` has no imaginary part there, and a negative zero loses its sign.
    parts = value.real, value.imag
    return all(math.isfinite(part) and (part or math.copysign(1, part) > 0) for part in parts)


def _function_names(program: Program) -> dict[str, str]:
    inner = [name for name in program.order if name != program.root]
    return {
        program.root: "program",
        **{name: f"body_{number}" for number, name in enumerate(inner, 1)},
    }


def _attributes(program: Program, graph: Graph, ids: dict[str, str]) -> Iterator[str]:
    for slot in dict.fromkeys(graph.reads.values()):
        persistent = "" if program.state[slot].persistent else ", persistent=False"
        yield f"    attach(root, {slot!r}, tensors[{slot!r}]{persistent})"
    for name in dict.fromkeys(graph.callees):
        yield f"    root.add_module({ids[name]!r}, {ids[name]}(tensors))"


def _node(node: Node, leaf: Callable[[Arg], str]) -> str:
    name = f", {node.name!r}" if is_identifier(node.name) else ""
    if type(node.do) is Get:
        return f'graph.create_node("get_attr", {node.do.slot!r}, (), {{}}{name})'
    method = node.target if isinstance(node.target, Method) else None
    kind, target = (
        ("call_function", target_code(node))
        if method is None
        else ("call_method", repr(method.name))
    )
    kwargs = ", ".join(f"{key!r}: {code_of(arg, leaf)}" for key, arg in node.kwargs)
    return f'graph.create_node("{kind}", {target}, {code_of(node.args, leaf)}, {{{kwargs}}}{name})'


# -- arguments ------------------------------------------------------------------------------------------------------------------


def _arguments(program: Program) -> str:
    values = FakeValues(program)
    made = [_argument(formal.name, spec, values) for formal, spec in program.user_inputs]
    lines = [
        "def arguments(call: int) -> list[Any]:",
        "    draw = torch.Generator().manual_seed(call)  # noqa: F841",
    ]
    return "\n".join([*lines, "    return [", *[f"        {one}," for one in made], "    ]"])


def _argument(name: str, spec: UserInput, values: FakeValues) -> str:
    match spec.type:
        case TensorType(dtype=dtype, shape=shape, device=device) if has_numbers(dtype):
            sizes = [values.example_number(size) for size in shape]
            if None not in sizes:
                return f"drawn({sizes}, {dtype}, draw).to({device!r})"
        case NumberType(kind=kind, expr=expr):
            number = NUMBERS[kind] if expr is None else values.example_number(expr)
            if number is not None:
                return repr(number)
        case LiteralType(value=value):
            return code_of(value, _literal)
        case _:
            pass
    raise UnsupportedProgram(
        f"no argument for the input {name!r} can be written; reduce the program first, px.minimize(...)"
    )


LITERAL_UP_TO = 64
"""Tensors with more numbers are replaced by random ones."""

PLAIN = (type(None), bool, int, str, bytes, range, type(Ellipsis))

NAMED = (torch.dtype, torch.layout, torch.memory_format)


def _literal(value: Any) -> str:
    if type(value) in PLAIN:
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if type(value) is complex:  # the code of a sum, as repr writes it, loses the sign of a zero
        return f"complex({_literal(value.real)}, {_literal(value.imag)})"
    if isinstance(value, NAMED):
        return str(value)
    if type(value) is torch.device:
        return f"torch.device({str(value)!r})"
    raise UnsupportedProgram(
        f"a {type(value).__name__} among the arguments or results cannot be written into a script; reduce the program "
        "first, px.minimize(...)"
    )


def contents_code(tensor: torch.Tensor) -> str:
    """Return code that makes a tensor, with the same contents if it is small, and random ones otherwise.

    Args:
        tensor: strided, on any device.

    >>> contents_code(torch.tensor([[1.0, 0.1]])), contents_code(torch.ones(5, 20, dtype=torch.float16))
    ('torch.tensor([1.0, 0.10000000149011612], dtype=torch.float32).reshape([1, 2])', 'drawn([5, 20], torch.float16, draw)')
    """
    sizes = list(tensor.shape)
    device = "" if tensor.device.type in ("cpu", "meta") else f".to({str(tensor.device)!r})"
    if tensor.numel() > LITERAL_UP_TO or tensor.is_meta or 0 in sizes:
        return f"drawn({sizes}, {tensor.dtype}, draw){device}"
    numbers = [_literal(number) for number in tensor.detach().cpu().flatten().tolist()]
    return f"torch.tensor([{', '.join(numbers)}], dtype={tensor.dtype}).reshape({sizes}){device}"


def target_code(node: Node) -> str:
    """Return the code of the operator of a node.

    Args:
        node: a call of an operator.

    Raises:
        UnsupportedProgram: the operator is not found by name.

    >>> from purefx.ir.operators import op_of
    >>> target_code(Node("y", op_of(torch.ops.aten.add.Tensor)))
    'torch.ops.aten.add.Tensor'
    """
    target, name = node.target, node.op_name
    known = isinstance(target, OpOverload) or name.startswith("higher_order.")
    code = f"torch.ops.{name}" if known else name
    if (
        target is None
        or not all(map(is_identifier, code.split(".")))
        or _found(code) is not target
        or op_name(target) != name
    ):
        raise UnsupportedProgram(
            f"{name} at {place_of(node)} is not found by name in torch or the standard library, so no script can call it"
        )
    return code


def _found(code: str) -> Any:
    try:
        return (
            pkgutil.resolve_name(code)
            if code.split(".", maxsplit=1)[0] in ("torch", "operator", "math", "builtins")
            else None
        )
    except (AttributeError, ImportError):
        return None


def attach(root: torch.nn.Module, path: str, value: Any, *, persistent: bool = True) -> None:
    """Register a tensor under a dotted path; create missing modules.

    Args:
        root: the root module.
        path: the dotted path.
        value: a parameter, or a tensor to register as a buffer.
        persistent: whether a buffer is in ``state_dict``.

    >>> attach(module := torch.nn.Module(), "a.w", torch.ones(1))
    >>> list(module.state_dict())
    ['a.w']
    """
    *way, name = path.split(".")
    for part in way:
        if part not in dict(root.named_children()):
            root.add_module(part, torch.nn.Module())
        root = root.get_submodule(part)
    if isinstance(value, torch.nn.Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value, persistent=persistent)


def observed(
    module: torch.nn.Module, arguments: Callable[[int], list[Any]], *, calls: int
) -> list[tuple[str, Any]]:
    """Return the results of several calls, the arguments after each call, and the state after the last.

    Args:
        module: the module to call; its state may change.
        arguments: returns the arguments of a call by its number.
        calls: the number of calls.

    >>> observed(torch.nn.ReLU(), lambda call: [torch.ones(1)], calls=1)[0]
    ('call 0, results', tensor([1.]))
    """
    seen: list[tuple[str, Any]] = []
    for call in range(calls):
        torch.manual_seed(call)
        args = arguments(call)
        with torch.no_grad():
            seen.append((f"call {call}, results", module(*args)))
        seen.append((f"call {call}, arguments afterwards", args))
    return [*seen, *module.named_parameters(), *module.named_buffers()]


def differences(actual: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> list[str]:
    """Return a line for each difference.

    Args:
        actual: the observations of one module, see ``observed``.
        expected: those of another.

    >>> differences([("w", torch.ones(1))], [("w", torch.ones(1)), ("v", torch.zeros(1))])
    ['v: missing']
    """
    there, found = dict(actual), list[str]()
    for name, value in expected:
        if name not in there:
            found.append(f"{name}: missing")
            continue
        difference = unequal(there[name], value)
        if difference:
            found.append(f"{name}: {difference}")
    return found


def unequal(actual: Any, expected: Any) -> str:
    """Return how two values differ; "" if they are equal.  NaNs are equal, and -0.0 is not 0.0 outside of tensors.

    Args:
        actual: a tensor, a container of such values, or another value.
        expected: the value to compare with.

    >>> unequal((torch.ones(1), "mode"), (torch.ones(1), "mode")), unequal([1, float("nan")], [2, float("nan")])
    ('', 'item 0: got 1, expected 2')
    """
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        try:
            torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split())
        return ""
    if type(actual) is not type(expected):
        return f"got a {type(actual).__name__}, expected a {type(expected).__name__}"
    if not isinstance(expected, list | tuple | dict):
        is_same = actual is expected or repr(actual) == repr(expected)
        return "" if is_same else f"got {actual!r}, expected {expected!r}"
    if len(actual) != len(expected):
        return f"got {len(actual)} items, expected {len(expected)}"
    if isinstance(actual, dict) and isinstance(expected, dict):
        actual, expected = list(actual.items()), list(expected.items())
    for index, (left, right) in enumerate(zip(actual, expected, strict=True)):
        difference = unequal(left, right)
        if difference:
            return f"item {index}: {difference}"
    return ""
