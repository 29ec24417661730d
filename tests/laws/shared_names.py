"""What bodies are called, and what is in them, that several modules share.

Both programs are walked side by side, so each body of the result is held against all that became it.
"""

from __future__ import annotations

from purefx.ir.arguments import bodies_in
from purefx.ir.calls.parts import part_names
from purefx.ir.graph import Call, Get, Graph, Node, Op
from purefx.ir.names import join, stem_of, word_of
from purefx.ir.program import Program
from purefx.laws.law import Case, Transform, law

__all__ = ["became", "named_for_all"]


@law("a body that others become is called after none of its modules, and a value in it after what all call it or what it is")
def named_for_all(transform: Transform, case: Case) -> list[str]:
    before, after = case.program, transform(case.program)
    classes = {module.path: module.type_name for module in before.modules}
    found: list[str] = []
    for name, places in _places(before, after).items():
        users = [before.graphs[user] for user in dict.fromkeys(user for user, _, _ in places)]
        paths = {path for _, path, _ in places}
        is_known = all(classes.get(path) for path in paths) and any(is_called for _, _, is_called in places)
        if len(users) > 1 and len(paths) > 1 and is_known and name.partition("@")[0] in paths:
            found.append(f"the body of {sorted(paths)} is called {name}")
        if not part_names(before) and not all(_names(user) == _names(users[0]) for user in users):
            found += [f"in {name}, which {sorted(paths)} share, {line}" for line in _strange(after.graphs[name], users)]
    return found


def became(before: Program, after: Program) -> dict[str, set[str]]:
    """Return for each body of a result the bodies that became it."""
    return {name: {user for user, _, _ in places} for name, places in _places(before, after).items()}


def _places(before: Program, after: Program) -> dict[str, set[tuple[str, str, bool]]]:
    # For each body of the result the bodies that became it, the modules that they stand in, and whether calls run them.
    found: dict[str, set[tuple[str, str, bool]]] = {}
    todo = [(before.root, after.root, "", False)]
    while todo:
        old, new, path, is_called = todo.pop()
        known = found.setdefault(new, set())
        if (old, path, is_called) in known:
            continue
        known.add((old, path, is_called))
        for mine, theirs in zip(before.graphs[old].nodes, after.graphs[new].nodes, strict=True):
            if type(mine.do) is Call and type(theirs.do) is Call:
                todo.append((mine.do.graph, theirs.do.graph, join(path, mine.do.instance.path), True))
            else:
                bodies = zip(bodies_in(mine.args, mine.kwargs), bodies_in(theirs.args, theirs.kwargs), strict=True)
                todo.extend((left, right, path, False) for left, right in bodies)
    return found


def _names(graph: Graph) -> list[str]:
    return [value.name for value in (*graph.inputs, *graph.nodes) if type(value) is not Node or type(value.do) is not Get]


def _strange(graph: Graph, users: list[Graph]) -> list[str]:
    found: list[str] = []
    numbers: dict[str, int] = {}
    for place, value in enumerate((*graph.inputs, *graph.nodes)):
        stem, called = stem_of(value.name), [(*user.inputs, *user.nodes)[place].name for user in users]
        stems = [stem_of(name) for name in called]
        is_what_all_say = all(name == stem or name.endswith(f"_{stem.removeprefix('_')}") for name in stems)
        if not is_what_all_say and stem not in _what_it_is(value.do if type(value) is Node else None):
            found.append(f"a value is called {value.name}, and not {called}")
        last, number = numbers.get(stem), value.name.removeprefix(stem).removeprefix("_")
        numbers[stem] = int(number or 0)
        if numbers[stem] not in ((0, 1) if last is None else (last + 1,)):
            found.append(f"{value.name} is not the next number")
    return found


def _what_it_is(do: Op | Get | Call | None) -> list[str]:
    match do:
        case Op(name=name):
            return [stem_of(word_of(part)) for part in name.split(".")]
        case Get(slot=slot):
            return [stem_of(word_of(slot))]
        case Call(instance=instance):
            return [stem_of(word_of(instance.path))]
        case None:
            return ["arg"]
