"""What splitting, swapping and the clean-up passes say when they refuse: what, where, and what to do, word for word.

What leads there is tested beside each transformation; here it is the text that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import nn

import purefx as px
from tests.programs import exported


class Two(nn.Module):
    """Two layers, a mask, and modules that are never called."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2), nn.Linear(2, 2)
        self.register_buffer("mask", torch.ones(2))
        self.idle = nn.Sequential(nn.ReLU(), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Both layers, masked."""
        return self.second(self.first(x).relu()) * self.mask


@cache
def flat() -> px.Program:
    """Return it flat."""
    return px.sink_state(px.import_ep(exported(Two(), torch.ones(2, 2))))


@cache
def tree() -> px.Program:
    """Return it with both calls preserved."""
    ep = exported(Two(), torch.ones(2, 2), preserve_module_call_signature=("first", "second"))
    return px.transform(px.import_ep(ep))


def many(count: int) -> px.Program:
    """Return a program with so many modules, each with a buffer."""
    program = px.Program.of({"": px.Graph((), (), ())}, modules=(px.ir.Module(""),), facts=frozenset({"state sunk"}))
    return program.with_state(add={f"m{number}.n": torch.ones(2) for number in range(count)})


SAID: list[tuple[Callable[[], object], str]] = [
    (
        lambda: px.split_by_tags(flat(), "ab", tag_of={}),
        "tags is a sequence of strings, one for each part in the order in which they run, not 'ab'",
    ),
    (
        lambda: px.split_by_tags(flat(), ("a", 1), tag_of={}),
        "a tag is a string, the name of the part; 1 is a int",
    ),
    (
        lambda: px.split_by_tags(flat(), (), tag_of={}),
        "tags names each part once; there is none",
    ),
    (
        lambda: px.split_by_tags(flat(), ("b", "a", "b", "c", "a"), tag_of={}),
        "tags names each part once; ['a', 'b'] stand there twice",
    ),
    (
        lambda: px.split_by_tags(flat(), ("a.b",), tag_of={}),
        (
            "'a.b' cannot be the name of a part, which is a module of its own: take a name that torch.nn.Module has "
            "not, without any of the characters . / @ #"
        ),
    ),
    (
        lambda: px.split_by_tags(flat(), ("a@",), tag_of={}),
        (
            "'a@' cannot be the name of a part, which is a module of its own: take a name that torch.nn.Module has "
            "not, without any of the characters . / @ #"
        ),
    ),
    (
        lambda: px.split_by_tags(flat(), ("forward",), tag_of={}),
        (
            "'forward' cannot be the name of a part, which is a module of its own: take a name that torch.nn.Module "
            "has not, without any of the characters . / @ #"
        ),
    ),
    (
        lambda: px.split_by_tags(flat(), ("training",), tag_of={}),
        (
            "'training' cannot be the name of a part, which is a module of its own: take a name that torch.nn.Module "
            "has not, without any of the characters . / @ #"
        ),
    ),
    (
        lambda: px.split_by_tags(flat(), ("a",), tag_of=3),
        "tag_of is a mapping from names of nodes or paths of modules, or a function of a node, not a int",
    ),
    (
        lambda: px.split_by_tags(flat(), ("a",), tag_of=lambda n: "b"),
        "node 'linear' in first has the tag 'b', which is none of the tags ['a']",
    ),
    (
        lambda: px.split_by_tags(flat(), ("a",), tag_of={"fist": "a"}),
        (
            "tag_of has the key 'fist', which is neither the name of a node of the flat program nor the path of a "
            "module; did you mean 'first'?"
        ),
    ),
    (
        lambda: px.split_by_tags(flat(), ("a", "b"), tag_of={"first": "b", "second": "a"}),
        (
            "node 'linear_1' in second has the tag 'a', which comes before 'b', but it depends on node 'linear' in "
            "first of 'b':\n    node 'relu' uses 'linear'\n    node 'linear_1' in second uses 'relu'\nput 'b' before "
            "'a' in the tags, or tag differently"
        ),
    ),
    (
        lambda: px.split_by_module(flat(), ["first"]),
        "modules is a mapping from paths of modules to names of parts, not a list",
    ),
    (
        lambda: px.split_by_module(flat(), {"secnd": "a"}),
        "'secnd' is the path of no module; did you mean 'second'?",
    ),
    (
        lambda: px.split_balanced(flat(), 2.0),
        "k is the number of parts, an int, not a float",
    ),
    (
        lambda: px.split_balanced(flat(), 0),
        "it can be split into 1 to 4 parts, since there are no more places to cut; k is 0",
    ),
    (
        lambda: px.split_balanced(flat(), 9),
        "it can be split into 1 to 4 parts, since there are no more places to cut; k is 9",
    ),
    (
        lambda: px.split_balanced(flat(), 2, cost=lambda n: -1),
        "cost gives -1 for node 'linear'; it gives a number of at least 0",
    ),
    (
        lambda: px.split_balanced(flat(), 2, cost=lambda n: float("inf")),
        "cost gives inf for node 'linear'; it gives a number of at least 0",
    ),
    (
        lambda: px.swap_modules(tree(), 3),
        'swap_modules takes a mapping from paths to replacements, not a int: swap_modules(program, {"layers.0.mlp": module})',
    ),
    (
        lambda: px.swap_modules(tree(), {3: nn.ReLU()}),
        "modules are named by their paths, which are strings; 3 is a int",
    ),
    (
        lambda: px.swap_modules(tree(), [("first", nn.ReLU()), ("first", nn.ReLU())]),
        "module 'first' is given twice; give one replacement for each path",
    ),
    (
        lambda: px.swap_modules(tree(), {"": nn.ReLU()}),
        "the root cannot be swapped, because nothing calls it; use the replacement itself instead",
    ),
    (
        lambda: px.swap_modules(tree(), {"first": nn.ReLU}),
        "module 'first': ReLU is a class; give an instance of it",
    ),
    (
        lambda: px.swap_modules(tree(), {"first": print}),
        (
            "module 'first': a builtin_function_or_method cannot stand in for a module; give a torch.nn.Module "
            "(eager, fx or compiled) or a purefx Program"
        ),
    ),
    (
        lambda: px.swap_modules(tree(), {"frist": nn.ReLU()}),
        "there is no module 'frist'; did you mean 'first'?",
    ),
    (
        lambda: px.swap_modules(tree(), {"zzz": nn.ReLU()}),
        "there is no module 'zzz'; the program has 'first', 'idle', 'second', 'idle.0', 'idle.1'",
    ),
    (
        lambda: px.swap_modules(tree(), {"first@3": nn.ReLU()}),
        "module 'first' has no call 3 (counted from 0); the calls of it are first",
    ),
    (
        lambda: px.swap_modules(tree(), {"idle@0": nn.ReLU()}),
        "module 'idle' has no call 0 (counted from 0); it is not called in this program",
    ),
    (
        lambda: px.swap_modules(tree(), {"idle": nn.ReLU()}),
        (
            "module 'idle' is not called in this program, or its call did nothing that was exported; export again "
            "with preserve_module_call_signature=('idle',) to keep the call"
        ),
    ),
    (
        lambda: px.swap_modules(tree(), {"idle": nn.ReLU(), "idle.0": nn.ReLU()}),
        (
            "module 'idle.0' is below 'idle', which is swapped as well for a ReLU: put it into that (0 = ...), or "
            "leave one of the two out"
        ),
    ),
    (
        lambda: px.swap_modules(tree(), {}, signature="any"),
        'signature=\'any\': it is "preserved" or "flat"',
    ),
    (
        lambda: px.swap_modules(tree(), {}, through="any"),
        'through=\'any\': it is "refuse", "result" or "argument"',
    ),
    (
        lambda: px.swap_modules(flat(), {"first": nn.ReLU()}),
        (
            "swap_modules requires a program in which the calls of 'first' are outlined, and p_first_weight in the "
            "root stands in one; run transform, or outline, first, or where that is the body of an operator, swap a "
            "module around it"
        ),
    ),
    (
        lambda: px.name_inputs(flat(), "x"),
        (
            "name_inputs takes names, one for each user input, or a mapping from inputs to names, not the str 'x'; "
            "write ['x'] for one input"
        ),
    ),
    (
        lambda: px.name_inputs(flat(), 3),
        "name_inputs takes names, one for each user input, or a mapping from inputs to names, not the int 3",
    ),
    (
        lambda: px.name_inputs(flat(), ["a", "b"]),
        "2 names for 1 user inputs: x; give a mapping to name some of them",
    ),
    (
        lambda: px.name_inputs(flat(), {"y": "z"}),
        "there is no user input 'y'; there are 'x'",
    ),
    (
        lambda: px.name_inputs(flat(), ["class"]),
        "the str 'class' cannot be the name of an input: it is not an identifier of Python, or a keyword",
    ),
    (
        lambda: px.normalize_stacks(flat(), aliases=["a"]),
        "normalize_stacks(aliases=) takes a mapping of paths, or the module, not a list",
    ),
    (
        lambda: px.normalize_stacks(flat(), aliases={"frst": "first"}),
        "normalize_stacks(aliases=): the program has no module 'frst'; did you mean 'first'?",
    ),
    (
        lambda: px.normalize_stacks(flat(), aliases={"first": "second", "second": "first"}),
        "normalize_stacks(aliases=): 'first' is 'second' is 'first': one of them must be the path to keep",
    ),
    (
        lambda: px.restore_names(flat(), 3),
        "restore_names takes the module that was traced, or a mapping from names to its tensors, not the int 3",
    ),
    (
        lambda: px.restore_names(flat(), {"a": 3}),
        "'a' is the int 3, and names are given to tensors and script objects",
    ),
    (
        lambda: px.restore_names(flat(), Two()),
        (
            "the module has none of the 5 tensors of the program ('first.weight', 'first.bias', 'second.weight' "
            "...): state is identified by its memory, so give the module itself that was traced, not a copy"
        ),
    ),
    (
        lambda: px.restore_names(flat(), Two(), inputs=3),
        "inputs are the arguments of one call, in a tuple or a list, not the int 3",
    ),
    (
        lambda: px.restore_names(flat(), Two(), inputs=()),
        "inputs are 0 values, and the program takes 1; give those of a whole call",
    ),
    (
        lambda: px.mark_non_persistent(flat(), "mask"),
        "mark_non_persistent takes names of buffers, or a module, not 'mask'; write [\"mask\"] for one buffer",
    ),
    (
        lambda: px.mark_non_persistent(flat(), 3),
        'mark_non_persistent takes names of buffers, or a module, not a int; write ["mask"] for one buffer',
    ),
    (
        lambda: px.mark_non_persistent(flat(), ["first.weight", "maks"]),
        "buffers cannot be left out: 'first.weight' is a parameter, no buffer; there is no state 'maks'; did you mean 'mask'?",
    ),
    (
        lambda: px.infer(flat(), changed="x"),
        "infer(changed=) takes a list of names of values, or the program before it was edited, not 'x'",
    ),
    (
        lambda: px.infer(flat(), changed=["rellu"]),
        "infer(changed=): the program has no value called 'rellu'; did you mean 'relu'?",
    ),
    (
        lambda: px.collect_call_signatures(flat(), specs={"a": 1, "b": 2}),
        "the program has no tracepoint, and specs= refers to 'a', 'b'",
    ),
    (
        lambda: px.swap_modules(many(5), {"zzz": nn.ReLU()}),
        "there is no module 'zzz'; the program has 'm0', 'm1', 'm2', 'm3', 'm4'",
    ),
    (
        lambda: px.swap_modules(many(6), {"zzz": nn.ReLU()}),
        "there is no module 'zzz'; the program has 'm0', 'm1', 'm2', 'm3', 'm4' ...",
    ),
    (lambda: px.swap_modules(many(0), {"zzz": nn.ReLU()}), "there is no module 'zzz'"),
    (
        lambda: px.mark_non_persistent(many(5), ["zzz"]),
        "buffers cannot be left out: there is no state 'zzz'; there are 'm0.n', 'm1.n', 'm2.n', 'm3.n', 'm4.n'",
    ),
    (
        lambda: px.mark_non_persistent(many(6), ["zzz"]),
        "buffers cannot be left out: there is no state 'zzz'; there are 'm0.n', 'm1.n', 'm2.n', 'm3.n', 'm4.n' ...",
    ),
]


@pytest.mark.parametrize("number", range(len(SAID)))
def test_what_is_said(number: int) -> None:
    refused, said = SAID[number]
    with pytest.raises((px.errors.PurefxError, TypeError, ValueError)) as caught:
        refused()
    assert str(caught.value) == said
