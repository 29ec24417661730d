"""Patterns: the variables and the term of a rule, rules of operators and of module calls, and the conditions of terms.

Conditions look at values, so they are asked when the operators of a term are found.  The terms themselves are in ``terms.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from ...ir.arguments import Ref
from ...ir.errors import RuleError
from ...ir.graph import Call, Node, Op
from ...ir.own_operators import is_boundary
from ...ir.program import Program
from ...ir.state import same_contents
from ...ir.torch_private import OpOverload, OpOverloadPacket, parameters_of, unguarded
from .amounts import Amount, Rest, Sizes, note_sizes
from .matching import Found, has_other_number, key_of
from .overloads import arranged, is_factory, operator_named
from .terms import AnyCall, AnyOf, Applied, ModuleCall, Term, Var, applied, parts_of, subterms

__all__ = ["any_call", "arguments_of", "check_call", "conditions_of", "holds", "is_found", "module", "term_of", "variables_of"]

FACTORIES = frozenset({
    "arange", "bartlett_window", "blackman_window", "empty", "eye", "full", "hamming_window", "hann_window", "kaiser_window",
    "linspace", "logspace", "ones", "rand", "randint", "randn", "randperm", "scalar_tensor", "tril_indices", "triu_indices",
    "zeros",
})  # fmt: skip
"""Functions of torch that make a tensor of numbers, which exported programs call as they stand."""

SIZED = frozenset({"empty", "ones", "rand", "randn", "zeros"})
"""Those that take sizes one by one as well."""

DIFFERING = frozenset({"empty", "rand", "randint", "randn", "randperm"})
"""Those that make another tensor each time."""


def any_call(operators: Any) -> AnyOf:
    """Return a term that matches wherever one of some operators is called.

    Args:
        operators: one, or several: operators, overloads, functions of torch.

    >>> import torch
    >>> any_call([torch.relu, torch.ops.aten.gelu.default])
    any_of(relu(...), gelu(...))
    """
    several = operators if isinstance(operators, list | tuple) else [operators]
    return AnyOf([each if isinstance(each, ModuleCall) else _any_call(each) for each in several])


def _any_call(function: Any) -> AnyCall:
    name, overloads = operator_named(function)
    return AnyCall(name, tuple(overloads))


def variables_of(function: Callable[..., Any], *, skip: int = 0) -> list[Var]:
    """Return a variable for each parameter of a function.

    Args:
        function: what a rule was written as.
        skip: how many parameters at the front are not variables.

    Raises:
        RuleError: it collects arguments, or has defaults.

    >>> variables_of(lambda x, y: x + y)
    [x, y]
    """
    try:
        parameters = list(inspect.signature(function).parameters.values())[skip:]
    except ValueError as error:  # of many functions that are written in C
        name = getattr(function, "__name__", "it")
        raise RuleError(f"{name} does not say what its parameters are; call it in a function: lambda x: {name}(x)") from error
    if any(one.kind is not one.POSITIONAL_OR_KEYWORD or one.default is not one.empty for one in parameters):
        raise RuleError("each parameter of a rule is a variable: no defaults, no *args; a variable matches a list as well")
    return [Var(one.name) for one in parameters]


def term_of(function: Callable[..., Any], variables: Sequence[Var]) -> Any:
    """Return what a pattern returns for its variables.

    Args:
        function: plain torch code.
        variables: what it is called with.

    >>> x = Var("x")
    >>> term_of(lambda x: x + torch.ops.aten.zeros.default([4]), [x])
    add(x, zeros([4]))
    """
    name = getattr(function, "__name__", "the pattern")
    with _Factories():
        try:
            term = function(*variables)
        except TypeError as error:
            note_sizes(error)
            raise
    _check(name, term)
    return term


def _check(name: str, term: Any) -> None:
    several = subterms(term)
    if twice := [each for each in several if isinstance(each, list) and sum(isinstance(one, Rest) for one in each) > 1]:
        raise RuleError(
            f"{name}: where one of several lists ends and the next begins is not said in {twice[0]!r}; take one variable"
        )
    for each in several:
        lists = [part for part in parts_of(each) if isinstance(part, Applied) and part.is_tensor is False]
        if lists and isinstance(each, Applied):
            raise RuleError(
                f"{name}: {each!r} has all results of {lists[0]!r}, and how many there are a rule does not know: take them\n"
                f"one by one, as in a, b = ...; {each.name}([a, b])"
            )
    bound = _bound(term)
    for each in several if isinstance(term, Term | list | tuple) else ():
        for part in parts_of(each) if isinstance(each, Amount | Sizes) else ():
            if isinstance(part, Term) and (part.name if isinstance(part, Var) else id(part)) not in bound:
                raise RuleError(
                    f"{name}: nothing but {each!r} says what {part!r} is there, and a number does not say of what it is;\n"
                    "a value has to stand in the pattern elsewhere, the same one: y = x.exp(), then y.reshape(y.shape[0], -1)"
                )


def _bound(term: Any) -> set[Any]:
    # The variables, by name, and the terms that are found as values of the program.
    todo, found = [term], set[Any]()
    while todo:
        each = todo.pop()
        key = each.name if isinstance(each, Var) else id(each)
        if key not in found:
            found.add(key)
            todo += [] if isinstance(each, Amount | Sizes) else parts_of(each)
    return found


class _Factories(TorchFunctionMode):
    """Makes terms of tensors that a pattern makes: an exported program calls the same operator, or has a constant."""

    def __torch_function__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        """Return a term where a tensor would be made."""
        kwargs, is_named = kwargs or {}, False
        if isinstance(function, OpOverload | OpOverloadPacket):
            is_named = all(map(is_factory, operator_named(function)[1]))
        if not is_named and (getattr(function, "__name__", "") not in FACTORIES or "out" in kwargs):
            return function(*args, **kwargs)
        term = _made(function, args, kwargs)
        if is_named or function.__name__ in DIFFERING or any(isinstance(each, Var) for each in subterms(term)):
            return term
        return AnyOf([term, function(*args, **kwargs)])


def _made(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Applied:
    given = {key: value for key, value in kwargs.items() if key != "requires_grad"}
    if function.__name__ in SIZED and args and not isinstance(args[0], list | tuple):
        args = [list(args)]
    return applied(function, args, given)


def conditions_of(term: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the conditions that a term brings with it, for matching does not ask them: they look at values.

    Args:
        term: what a rule looks for.

    >>> x = Var("x")
    >>> len(conditions_of(x.exp())), len(conditions_of(x / x.size(0)))
    (0, 1)
    """
    return (*tensors_in(term), *knowledge_in(term), *numbers_in(term), *calls_in(subterms(term)))


def holds(conditions: Sequence[Callable[[Any], bool]], m: Any) -> bool:
    """Return whether conditions on a match hold; a comparison of sizes that the program's constraints leave open does not."""
    return bool(unguarded(m.scope.environment, lambda: all(condition(m) for condition in conditions)))


def is_found(term: Any, m: Any, found: Found) -> bool:
    """Return whether the conditions hold that a term brings with it, where it was looked for while a rule looks at a match.

    Args:
        term: what was looked for.
        m: the match of the rule, which notes what was asked.
        found: the way in which a value is the term.
    """
    place = type(m)(m.scope, m.stack, m.instance, found, m.variables)
    is_so = holds(conditions_of(term), place)
    m.notes.asked |= place.notes.asked
    m.notes.reads.update(place.notes.reads if is_so else {})
    return is_so


def tensors_in(term: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that the tensors of a pattern are constants of the program; none where it has no tensors.

    Args:
        term: what a rule looks for.

    >>> import torch
    >>> tensors_in(torch.add(Var("x"), 1)), len(tensors_in(torch.add(Var("x"), torch.tensor(1.0))))
    ((), 1)
    """
    tensors = {key_of(each): each for each in subterms(term) if isinstance(each, torch.Tensor)}

    def are_constants(m: Any) -> bool:
        values = m.found.values
        found = [(m.constant(value), tensor) for key, tensor in tensors.items() for value in values.get(key, ())]
        return all(held is not None and same_contents(held, tensor) for held, tensor in found)

    return (are_constants,) if tensors else ()


def knowledge_in(term: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that what a pattern says to be known of values is so; none where it says nothing of that kind.

    Args:
        term: what a rule looks for.

    >>> x = Var("x")
    >>> knowledge_in(x * 2), len(knowledge_in(x / x.size(0)))
    ((), 1)
    """
    several = [each for each in subterms(term) if isinstance(each, Amount | Sizes)]

    def are_known(m: Any) -> bool:
        places = [(each, value) for each in several for value in m.found.values.get(key_of(each), ())]
        return all(_is_known(m, each, value) for each, value in places)

    return (are_known,) if several else ()


def _is_known(m: Any, term: Any, value: Any) -> bool:
    known, values = term.on(lambda part: _told(m, part)), value if isinstance(value, list | tuple) else [value]
    wanted = known if isinstance(term, Sizes) else [known]
    if wanted is None or len(values) != len(wanted) or not all(map(_is_same, wanted, map(m.val, values))):
        return False
    m.notes.reads.update(_computed_by(m, values))
    return True


def _is_same(known: Any, value: Any) -> bool:
    if isinstance(known, int | float | torch.SymInt | torch.SymFloat):
        return (type(value) is type(known) or isinstance(value, torch.SymInt | torch.SymFloat)) and bool(known == value)
    return known is not None and known is value


def _told(m: Any, part: Any) -> Any:
    # What is known of a term that was found: of a tensor its sizes, of a number what it is.
    values = m.found.values
    while isinstance(part, AnyOf):
        part = part.terms[values[f"alternative {id(part)}"]] if f"alternative {id(part)}" in values else None
    if isinstance(part, Var):
        found = m[part.name]
    elif isinstance(part, torch.Tensor):
        found = next(iter(values.get(key_of(part), ())), None)
    else:
        found = values.get(key_of(part)) or m.found.node_of(part) if isinstance(part, Term) else part
    return None if found is None else m.val(found)


def _computed_by(m: Any, values: Sequence[Any]) -> dict[str, None]:
    # The nodes that compute numbers: those go with a match that nobody else uses.
    todo, found = [*values], dict[str, None]()
    while todo:
        value = todo.pop()
        node = m.scope.node_of(value.name) if type(value) is Ref and value.name not in found else None
        if node is not None and not isinstance(m.val(value), torch.Tensor):
            found[value.name] = None
            todo += map(Ref, node.refs())
    return found


def numbers_in(term: Any) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that a number may be written as another type of number, as where tensors are floating-point.

    Args:
        term: what a rule looks for.

    >>> x = Var("x")
    >>> len(numbers_in(x * 2)), len(numbers_in(x.exp()))
    (1, 0)
    """

    def are_alike(m: Any) -> bool:
        found = zip(m.found.terms, m.found.nodes, strict=True)
        return all(
            any(_is_floating(m.val(Ref(name))) for name in node.refs()) for each, node in found if has_other_number(each, node)
        )

    is_asked = any(type(value) in (int, float) and "number" in kind for value, kind in _numbers_of(term))
    return (are_alike,) if is_asked else ()


def _numbers_of(term: Any) -> Iterator[tuple[Any, str]]:
    # What parameters get that may take a tensor or any number, with their types.
    for each in subterms(term):
        for overload, given in each.overloads.items() if isinstance(each, Applied) else ():
            for one in parameters_of(overload):
                yield given[one.name], "number" if one.kind == "Tensor" else one.kind


def _is_floating(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def module(where: Any) -> ModuleCall:
    """Return what ``px.rule(at=...)`` takes to look at calls of modules, in a tree.

    Args:
        where: the path of a module from the root, in which ``*`` and ``?`` stand for any characters; or a class of modules.

    >>> module("layers.*.mlp"), module(torch.nn.Linear)
    (module(layers.*.mlp), module(torch.nn.modules.linear.Linear))

    Raises:
        RuleError: it is neither.
    """
    if isinstance(where, type) and issubclass(where, torch.nn.Module):
        return ModuleCall(None, f"{where.__module__}.{where.__qualname__}")
    if not isinstance(where, str):
        raise RuleError(f"px.module takes the path of a module, with * for any characters, or a class of modules, not {where!r}")
    return ModuleCall(where, None)


def arguments_of(program: Program, node: Node) -> Mapping[str, Any]:
    """Return what each parameter of an operator gets, defaults included, or each input of the body that a node calls."""
    if type(node.do) is Call:
        return dict(zip([formal.name for formal in program.graphs[node.do.graph].inputs], node.args, strict=True))
    return (arranged(node.do.target, node.args, dict(node.kwargs)) if type(node.do) is Op else None) or {}


def calls_in(terms: Iterable[Any]) -> tuple[Callable[[Any], bool], ...]:
    """Return the condition that calls are of modules that are meant; none where no term is a call.

    Args:
        terms: the parts of what a rule looks for.
    """
    if not any(isinstance(each, ModuleCall) for each in terms):
        return ()

    def are_meant(m: Any) -> bool:
        around = m.scope.paths[m.instance]
        m.notes.asked |= len(m.scope.paths) > 1
        found = zip(m.found.terms, m.found.nodes, strict=True)
        return all(term.is_at(node, around, m.program) for term, node in found if isinstance(term, ModuleCall))

    return (are_meant,)


def check_call(m: Any, term: Any) -> None:
    """Check that a rule may replace a call of a module.

    Args:
        m: a match.
        term: the term that the rule returned.

    Raises:
        RuleError: the module has several results, or a call goes whose signature is preserved.
    """
    node = m.root
    if type(node.do) is not Call or term is None:
        return
    body, name = m.program.graphs[node.do.graph], node.do.instance
    if type(body.output) is tuple:
        raise RuleError(
            f"{m.place}: the module {name} returns {len(body.output)} values, and rules replace calls with one: leave it out in\n"
            "`where=`, match the operators of its body, or apply the rule before outline"
        )
    if any(map(is_boundary, body.nodes)) and not any(each is m.kept for each in subterms(term)):
        raise RuleError(
            f"{m.place}: the call of {name} has a preserved signature, which a rule would break: make something of m.value,\n"
            "which keeps the call, or export without preserve_module_call_signature"
        )
