"""The contract of a program as text: signature, constraints, modules, and the sizes and guards in them.

Each kind of line is a form, printed and parsed from one description; sizes, ``(2 * s77) == size(#0, 1)``, are read by precedence.

>>> INPUT.write(StateInput("lin.weight")), INPUT.write(UserInput(LiteralType(None), "mask"))
('state lin.weight', 'user mask: literal None')
>>> INPUT.write(UserInput(ObjectType(), "y", LiteralType(1))), INPUT.write(UserInput(RestType(), "args"))
('user y: object "" default 1', 'user args: rest')
>>> INPUT.write(UserInput(ObjectType(), "tangents[0]", tangent_of=0))
'user "tangents[0]": object "" tangent of output 0'
>>> OUTPUT.write(UserOutput()), OUTPUT.write(StateGradient("lin.weight")), OUTPUT.read(Cursor("input 3"))
('user', 'gradient of state lin.weight', InputMutation(index=3))
>>> SUNK.write(SunkInput("lin.bias", 2, used=False)), SUNK.read(Cursor("lin.bias behind 2"))
('lin.bias behind 2 unused', SunkInput(slot='lin.bias', behind=2, used=True))
>>> RANGE.write(Range(Sym("s77"), 2, None)), MODULE.write(Module("layers.0", "torch.nn.Linear"))
('s77 from 2', 'layers.0: torch.nn.Linear')
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any

from ..effects.declared import ANYTHING, PURE, ArgAt, Effects, Unless
from ..expression import OPERATORS, Apply, Expr, InputDim, InputValue, Sym
from ..graph import Frame, Stack
from ..persistent import pmap
from ..program import CallSignature, Module, Program
from ..signature import (
    InputGradient,
    InputMutation,
    InputSpec,
    LiteralType,
    LossOutput,
    NumberType,
    ObjectType,
    OutputSpec,
    Range,
    RestType,
    StateGradient,
    StateInput,
    StateMutation,
    SunkInput,
    TensorType,
    Token,
    UserInput,
    UserOutput,
)
from .arguments import ARG, TREE, opaque, print_arg
from .lexer import MAX_DEPTH, Cursor, quoted, read_list, spell_value
from .state import LITERAL, print_state, read_state
from .syntax import (
    BY_TYPE,
    PATH,
    Syntax,
    behind,
    block,
    braced,
    choice,
    form,
    listed,
    path,
    string,
    words,
)

FRAME = form(Frame, "{path}[@{call}]")
"""A module call: ``layers.0@1``."""


def print_stack(stack: Stack) -> str:
    """Return a stack of module calls as text; a leading dot abbreviates the path of the call around it.

    >>> print_stack((Frame("layers.0", 1), Frame("layers.0.attn")))
    'layers.0@1 / .attn'
    """
    above = [".", *[frame.path for frame in stack]]
    texts = zip(map(FRAME.write, stack), above, strict=False)
    return " / ".join(
        [text.removeprefix(path) if text.startswith(f"{path}.") else text for text, path in texts]
    )


def read_stack(cursor: Cursor) -> Stack:
    """Read a stack of module calls.

    >>> read_stack(Cursor("layers.0 / .attn"))[1].path
    'layers.0.attn'
    """
    frames: list[Frame] = []
    while not frames or cursor.skip("/"):
        above = frames[-1].path if frames and cursor.kind == "below" else ""
        path = above + cursor.advance() if above else cursor.path("the path of a module")
        frames.append(
            Frame(path, cursor.integer("the number of a call") if cursor.skip("@") else 0)
        )
    return tuple(frames)


ARG_AT = form(ArgAt, "{index}:{name}")

RESULT: Syntax[ArgAt | None] = choice(words("an argument or none", {"none": None}), ARG_AT)

NUMBER = choice(
    words("a number", {"None": None, "True": True, "False": False}),
    Syntax[Any](print_arg, Cursor.number, (int, float)),
)

SWITCH = form(Unless, "{arg}={value}|{default}", arg=ARG_AT, value=NUMBER, default=NUMBER)

EFFECTS = form(
    Effects,
    "[ writes{writes}][ writes_unless{writes_unless}][ returns{returns}][ aliases{aliases}][ random_unless{random_unless}]"
    "[ completes{completes}][ sends{sends}][ domain {domain}][ group {group}]{random?random/}{ordered?ordered/}"
    "{through_bodies?through_bodies/}{message?message/}{unknown?unknown/}[ {scope}]",
    **dict.fromkeys(("writes", "aliases", "completes", "sends"), listed(ARG_AT)),
    **dict.fromkeys(("writes_unless", "random_unless"), listed(SWITCH)),
    returns=listed(RESULT),
    group=ARG_AT,
    scope=words("opens or closes", {"opens": 1, "closes": -1}),
)
"""The effects of an operator; none if it is pure."""


def print_effects(effects: Effects) -> str:
    """Return effects as text.

    >>> print_effects(Effects(writes=(ArgAt(0, "self"),), random=True)), print_effects(PURE)
    ('writes(0:self) random', 'pure')
    """
    return "anything" if effects == ANYTHING else EFFECTS.write(effects).lstrip() or "pure"


def read_effects(cursor: Cursor) -> Effects:
    """Read effects.

    Raises:
        ParseError: the text is not effects.

    >>> read_effects(Cursor("writes(0:self) random")) == Effects(writes=(ArgAt(0, "self"),), random=True)
    True
    """
    if cursor.skip("anything"):
        return ANYTHING
    return PURE if cursor.skip("pure") else EFFECTS.read(cursor)


INFIX = ("+", "-", "*", "//", "/", "%", "**", "==", "!=", "<", "<=", ">", ">=", "and", "or")

OF_INPUT: Syntax[InputDim | InputValue] = choice(
    form(
        InputDim,
        "{of}(#{index}, {dim})",
        of=words("size or stride", {"size": "size", "stride": "stride"}),
    ),
    form(InputValue, "value(#{index})"),
)


def print_expr(expr: Expr, depth: int = 0) -> str:
    """Return an expression as text.

    Args:
        expr: the expression.
        depth: the number of operators around it; an operator inside another gets brackets.

    >>> print_expr(Apply("==", (Apply("*", (2, Sym("s77"))), InputDim(0, 1))))
    '(2 * s77) == size(#0, 1)'
    """
    match expr:
        case Sym(name):
            return (
                f"%{quoted(name)}"
                if name in OPERATORS or name in OF_INPUT.starts
                else spell_value(name)
            )
        case InputDim(of="size" | "stride") | InputValue():
            return OF_INPUT.write(expr)
        case Apply(op, args) if op in OPERATORS and depth < MAX_DEPTH:
            inside = [print_expr(arg, depth + 1) for arg in args]
            if op in INFIX and len(args) > 1:
                joined = f" {op} ".join(inside)
                return f"({joined})" if depth else joined
            return f"{op if op.isalpha() else quoted(op)}({', '.join(inside)})"
        case bool() | int() | float():
            return print_arg(expr)
        case _:
            return opaque(type(expr).__qualname__)


def read_expr(cursor: Cursor) -> Expr:
    """Read an expression.

    Raises:
        ParseError: the text is not an expression.

    >>> read_expr(Cursor("(2 * s77) == size(#0, 1)"))
    Apply(op='==', args=(Apply(op='*', args=(2, Sym(name='s77'))), InputDim(index=0, dim=1, of='size')))
    """
    first = _read_operand(cursor)
    op = cursor.text
    if op not in INFIX or cursor.kind not in ("symbol", "word"):
        return first
    args = [first]
    while cursor.skip(op):
        args.append(_read_operand(cursor))
    return Apply(op, tuple(args))


def _read_operand(cursor: Cursor) -> Expr:
    if cursor.kind == "number":
        return cursor.number()
    if cursor.skip("("):
        with cursor.nested():
            inside = read_expr(cursor)
            cursor.take(")")
            return inside
    if cursor.kind == "word" and cursor.text in ("True", "False"):
        return cursor.advance() == "True"
    if cursor.kind == "word" and cursor.text in OF_INPUT.starts:
        return OF_INPUT.read(cursor)
    if cursor.kind == "string" or (cursor.kind == "word" and cursor.text in OPERATORS):
        at = cursor.start
        op = cursor.string() if cursor.kind == "string" else cursor.advance()
        if op not in OPERATORS:
            raise cursor.error("expected an operator on sizes", at=at)
        with cursor.nested():
            return Apply(op, tuple(read_list(cursor, read_expr)))
    return Sym(cursor.value())


EXPR: Syntax[Expr] = Syntax(print_expr, read_expr)

BY_TYPE.update(dict.fromkeys(("Expr", "Expr | None"), lambda _: EXPR))

TYPE = choice(
    LITERAL,
    form(ObjectType, "object {description}", description=string("a description")),
    form(RestType, "rest{keywords?keywords/}"),
    form(NumberType, "number {kind}[ = {expr}]"),
    form(TensorType, "{dtype}{shape}[ on {device}]", shape=listed(EXPR, "[]")),
)

DEFAULT = form(LiteralType, "{value}", value=ARG)

ONLY: Syntax[Any] = Syntax(lambda _: "", lambda cursor: tuple(cursor.known.types.values()))
"""The classes of an input are not written: the reader passes them as `types`."""

USER = "user {argument}: {type}[ default {default}][ tangent of output {tangent_of}]{only}"

INPUT: Syntax[InputSpec] = choice(
    form(StateInput, "state {slot}"),
    form(UserInput, USER, type=TYPE, default=DEFAULT, only=ONLY),
    form(Token, "token"),
)
"""The role of an input of the root graph."""

OUTPUT: Syntax[OutputSpec] = choice(
    form(UserOutput, "user"),
    form(StateMutation, "state {slot}"),
    form(InputMutation, "input {index}"),
    form(Token, "token"),
    form(LossOutput, "loss"),
    behind(
        "gradient of ",
        choice(form(StateGradient, "state {slot}"), form(InputGradient, "leaf {leaf}")),
    ),
)
"""The role of an output of the root graph."""

SUNK = form(SunkInput, "{slot}[ behind {behind}]{used?/unused}")
"""A state input that was turned into reads."""

RANGE = form(Range, "{expr}[ from {low}][ to {high}]")
"""The bounds of a size."""

MODULE = form(Module, "{path}[: {type_name}][ cell {cell}]")
"""A module of the hierarchy."""

NAMES = listed(PATH)

FACTS = Syntax(
    lambda facts: NAMES.write(tuple(sorted(facts))), lambda cursor: frozenset(NAMES.read(cursor))
)

STATE = Syntax(lambda state: braced(print_state(state)), read_state)


CALL = form(
    CallSignature,
    "{shared?shared/}[ names {arg_names}][ in_spec {in_spec}][ out_spec {out_spec}]",
    arg_names=NAMES,
    in_spec=TREE,
    out_spec=TREE,
)
"""The preserved signature of a call."""


def _print_calls(calls: Mapping[Frame, CallSignature]) -> str:
    frames = sorted(calls, key=lambda frame: (frame.path, frame.call))
    return braced([f"{FRAME.write(frame)}:{CALL.write(calls[frame])}" for frame in frames])


def _read_calls(cursor: Cursor) -> Mapping[Frame, CallSignature]:
    found: dict[Frame, CallSignature] = {}
    for _ in cursor.block():
        at, frame = cursor.start, FRAME.read(cursor)
        if frame in found:
            raise cursor.error("a second signature of this call", at=at)
        cursor.take(":")
        found[frame] = CALL.read(cursor)
    return pmap(found)


SECTIONS: Mapping[str, tuple[str, Syntax[Any]]] = {
    "root": ("root", behind("@", path("the name of a graph"))),
    "facts": ("facts", FACTS),
    "modules": ("modules", block(MODULE)),
    "state": ("state", STATE),
    "takes": ("signature.inputs", block(INPUT)),
    "gives": ("signature.outputs", block(OUTPUT)),
    "lifted": ("signature.lifted", block(SUNK)),
    "names": ("signature.arg_names", NAMES),
    "in_spec": ("signature.in_spec", TREE),
    "out_spec": ("signature.out_spec", TREE),
    "ranges": ("constraints.ranges", block(RANGE)),
    "guards": ("constraints.guards", block(EXPR)),
    "signatures": ("call_signatures", Syntax(_print_calls, _read_calls)),
}
"""The sections of a program, in the order of the text: a field, which is left out if it has its default, and its syntax."""

EMPTY = Program.of({})


def print_sections(program: Program, other: Program | None = None) -> dict[str, list[str]]:
    """Return the lines of each section of a program, by its first word.

    Args:
        program: any program.
        other: another one; sections whose value is the same object in both are empty.

    >>> program = Program.of({}, facts=frozenset({"flat"}), call_signatures=pmap({Frame("a"): CallSignature(None, None, ("x",))}))
    >>> print_sections(program)["facts"], print_sections(program)["signatures"]
    (['facts (flat)'], ['signatures {', '  a: names (x)', '}'])
    """
    found: dict[str, list[str]] = {}
    for word, (field, syntax) in SECTIONS.items():
        value = attrgetter(field)(program)
        is_left_out = value == attrgetter(field)(EMPTY) or (
            other is not None and value is attrgetter(field)(other)
        )
        found[word] = [] if is_left_out else f"{word} {syntax.write(value)}".split("\n")
    return found
