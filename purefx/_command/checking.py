"""``check MODULE:NAME``: is a pass over fx graphs right?

The command line of ``purefx.laws.fx_passes``: progress on a terminal, a table at the end, and the reduced program of each
mistake that differs from the others.  It runs the code of the pass, as importing it does.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from purefx._command.options import Commands
from purefx._command.output import Answer, CommandError
from purefx.ir.names import did_you_mean
from purefx.lowering import as_fx_pass
from purefx.transforms import Rule, RuleSet, Transformation

if TYPE_CHECKING:
    from purefx.laws.fx_passes import Contract, Hunt, PassReport

__all__ = ["check_command"]

CONTRACTS = ("anything", "functional", "inference", "pointwise")

FLAGS = ("random", "effects", "views", "regions", "dynamic", "training")

CLAIMS = ("aliasing", "values", "assertions")

NOTHING_CHANGED = "It changed none of them, so this says nothing of what it does: say what it looks for with --around."


def check_command(commands: Commands) -> None:
    """Add the command.

    Args:
        commands: of the command line.
    """
    told = "Ask whether a pass over fx graphs is right, on programs that are drawn for it; status 1 where it is wrong."
    example = "check torch.fx.passes.tools_common:legalize_graph --minutes 1"
    add = commands.add("check", _check, told, example).add_argument
    add("what", metavar="MODULE:NAME", help="a function, a PassBase or PassManager (or its class), a transformation or a rule")
    add("--over", choices=("graph_module", "graph", "exported_program"), default="graph_module", help="what it takes")
    add("--contract", choices=CONTRACTS, default="anything", help="what it may assume of programs")
    add("--without", choices=FLAGS, action="append", default=[], help="what programs need not have; several times")
    told = "what it does not claim: shared memory, meta['val'] or assertions as they were; several times"
    add("--unclaimed", choices=CLAIMS, action="append", default=[], help=told)
    add("--tolerance", type=float, default=0.0, help="how far numbers may be apart; 0 compares bits")
    told = "operators, modules that torch.export exports, or programs of nnsmith (an extra)"
    add("--tier", choices=("aten", "modules", "nnsmith"), default="aten", help=told)
    told = "what it looks for: a list of rules and of pairs (function, example arguments), or one of those; several times"
    add("--around", metavar="MODULE:NAME", action="append", default=[], help=told)
    add("--minutes", type=float, default=1.0, help="how long (1)")
    add("--seed", type=int, default=0, help="of the first programs (0)")
    add("--hash-seeds", type=int, default=2, metavar="N", help="processes with other hashes to compare (2; 0 for none)")
    add("--texts", type=int, metavar="N", help=argparse.SUPPRESS)  # what the processes of --hash-seeds print


def _check(given: argparse.Namespace) -> Answer:
    from purefx.laws.fx_passes import hunt, texts

    a_pass, contract = _pass_of(given.what), _contract_of(given)
    around = [one for what in given.around for one in _seeds_of(what)]
    if given.texts is not None:
        told = texts(a_pass, over=given.over, contract=contract, examples=given.texts, seed=given.seed, around=around)
        return Answer(lambda: "\n".join(told), lambda: {"texts": told})
    found = hunt(
        a_pass,
        seconds=60 * given.minutes,
        over=given.over,
        contract=contract,
        tier=given.tier,
        seed=given.seed,
        around=around,
        progress=_progress,
    )
    if sys.stderr.isatty():
        sys.stderr.write("\r\x1b[K")
    depends = _depends_on_hashes(given) if given.hash_seeds else []
    status = 1 if found.report.findings or depends else 0
    return Answer(lambda: _text(found, depends), lambda: _data(found, depends), status=status)


def _text(found: Hunt, depends: list[str]) -> str:
    report = found.report
    lines = [f"{number}. {each.message}\n" for number, each in enumerate(report.findings, 1)]
    lines += [_table(report, dict(found.counts)), *depends]
    return "\n".join([*lines, *([] if report.changed else [NOTHING_CHANGED])])


def _data(found: Hunt, depends: list[str]) -> dict[str, Any]:
    report = found.report
    return {
        "pass": report.name,
        "programs": report.drawn,
        "changed": report.changed,
        "right": report.right,
        "outside": report.outside,
        "wrong": dict(sorted(found.counts.items())),
        "refused": dict(sorted(report.refused.items())),
        "findings": [
            {"law": one.law, "statement": one.statement, "wrong": list(one.wrong), "program": one.program and str(one.program)}
            for one in report.findings
        ],
        "depends_on_hashes": depends,
    }


def _pass_of(what: str) -> Any:
    found = _named(what, like="torch.fx.passes.tools_common:legalize_graph")
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise CommandError(f"{what} is a class that takes arguments ({error}); name an instance, or a function") from error
    return as_fx_pass(found) if isinstance(found, Transformation | Rule | RuleSet) else found


def _seeds_of(what: str) -> list[Any]:
    found = _named(what, like="my_passes:patterns")
    is_pair = isinstance(found, tuple) and len(found) > 1 and callable(found[0]) and isinstance(found[1], tuple)
    return [*found] if isinstance(found, list | tuple) and not is_pair else [found]


def _named(what: str, *, like: str) -> Any:
    module, colon, name = what.partition(":")
    if not (colon and module and name):
        raise CommandError(f"{what!r} names nothing: write MODULE:NAME, like {like}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:
        raise CommandError(f"{module} cannot be imported: {type(error).__name__}: {error}") from error
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in dir(found) if not each.startswith("_")]
            near = did_you_mean(part, known)
            raise CommandError(f"{module} has no {name!r}; it has {', '.join(known[:12])} ...{near}")
        found = getattr(found, part)
    return found


def _contract_of(given: argparse.Namespace) -> Contract:
    from attrs import evolve

    from purefx.laws import fx_passes

    contract: Contract = getattr(fx_passes, given.contract.upper())
    return evolve(contract, tolerance=given.tolerance, **dict.fromkeys([*given.without, *given.unclaimed], False))


def _progress(seconds: float, report: PassReport) -> None:
    if sys.stderr.isatty():
        minutes, rest = divmod(round(seconds), 60)
        sys.stderr.write(f"\r{minutes}:{rest:02}  {report.drawn} programs, {report.wrong} wrong\x1b[K")
        sys.stderr.flush()


def _table(report: PassReport, counts: dict[str, int]) -> str:
    rows = [("programs", report.drawn), ("changed", report.changed), ("right", report.right)]
    rows += [(f"wrong: {law}", count) for law, count in sorted(counts.items())]
    rows += [(f"refused: {name}", count) for name, count in sorted(report.refused.items())]
    rows += [("outside the contract", report.outside)]
    return "\n".join([report.name, *[f"  {what:<24}{count:>7}" for what, count in rows]])


def _depends_on_hashes(given: argparse.Namespace) -> list[str]:
    # The results of one pass on the same programs, in processes whose hashes differ.
    command = [sys.executable, "-W", "ignore", "-m", "purefx", "check", given.what, "--over", given.over, "--texts", "10"]
    command += ["--contract", given.contract, "--seed", str(given.seed), *[f"--without={flag}" for flag in given.without]]
    command += [*[f"--unclaimed={claim}" for claim in given.unclaimed], *[f"--around={what}" for what in given.around]]
    found: dict[str, int] = {}
    for number in range(given.hash_seeds):
        environment = {**os.environ, "PYTHONHASHSEED": str(number)}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603  our own
        if done.returncode:
            return [f"With PYTHONHASHSEED={number} it cannot be asked: {done.stderr.strip()[-300:]}"]
        found.setdefault(done.stdout, number)
    if len(found) < 2:
        return []
    seeds = " and ".join([f"PYTHONHASHSEED={number}" for number in found.values()])
    return [f"From the same programs it makes others with {seeds}: its result depends on the order of a set."]
