"""``history``: where a node comes from, and what became of one.

A saved program keeps what its steps did to each node, so a file tells what the program told that was saved.
"""

from __future__ import annotations

import argparse

from purefx._command.files import read_small
from purefx._command.options import Commands
from purefx._command.output import Answer, CommandError
from purefx.ir.analysis.history import History, became, history
from purefx.ir.errors import NamingError
from purefx.ir.program import Program

__all__ = ["history_command"]

SHOWN = 8
"""How many graphs are named that have a node of one name."""


def history_command(commands: Commands) -> None:
    """Add the command.

    Args:
        commands: of the command line.
    """
    told = "Say where a node comes from: the steps, the imported nodes, the lines of the user. Or what became of one: --forward."
    examples = ("history model.purefx 'Block / relu'", "history model.purefx relu_1 --forward")
    made = commands.add("history", _history, told, *examples, files=["FILE"])
    add = made.add_argument
    add("node", metavar="NODE", help="its name; 'layers.0 / relu' is the one in that graph or module")
    add("--graph", metavar="ID", help="the id of its graph, or the path of a module that runs it")
    add("--forward", action="store_true", help="what became of a node that was imported, or was there after --step steps")
    add("--step", type=int, metavar="N", help="after how many steps it was called so (0: as it was imported); with --forward")


def _history(given: argparse.Namespace) -> Answer:
    if given.step is not None and not given.forward:
        raise CommandError("--step says where to begin with --forward; backwards a node is one of the program as it is now")
    program, name = read_small(given.file, given), given.node
    if given.forward:
        graph, _, name = name.rpartition(" / ") if given.graph is None else (given.graph, "", name)
        found = became(program, name, graph=graph, step=given.step or 0)
    else:
        found = _history_of(program, name, given.graph)
    return Answer(lambda: str(found), found.to_dict, "history")


def _history_of(program: Program, name: str, graph: str | None) -> History:
    _check_one(program, name, graph)
    try:
        return history(program, name, graph=graph)
    except NamingError as error:
        raise CommandError(f"{error}{_advice(program, name, graph)}") from error


def _advice(program: Program, name: str, graph: str | None) -> str:
    try:
        became(program, name, graph=graph or "")
    except NamingError:
        is_path = graph is None and " / " not in name and any(mark in name for mark in "./")
        return "; the node of a graph or a module is written 'layers.0 / relu'" if is_path else ""
    return "; the imported program had one: --forward says what became of it"


def _check_one(program: Program, name: str, graph: str | None) -> None:
    # The library says so too, in the words of its own arguments.
    if graph is not None or " / " in name:
        return
    has = [one for one in program.order if name in program.graphs[one].by_name]
    if len(has) > 1 and program.root not in has:
        names = ", ".join([ascii(f"{one} / {name}") for one in has[:SHOWN]])
        raise CommandError(f"{len(has)} graphs have a node {name!a}; say which: {names}{' ...' if len(has) > SHOWN else ''}")
