"""``make audit``: are published passes of the installed torch right?  Writes ``docs/audit.md`` and a script for each mistake.

Every pass of ``passes.py`` is asked on programs within its contract.  What is wrong is made small, written as a script that
needs only torch, and that script is run: a mistake counts as confirmed where torch alone shows it.  Outside of its contract a
pass is asked as well, and that is only counted.
"""

from __future__ import annotations

import argparse
import copy
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import evolve, field, frozen

import purefx as px
from purefx.laws.fx_passes import Contract, Finding, PassReport, survey_pass

from .passes import ANYTHING, GRAPH, PASSES, Published, describes

ROOT = Path(__file__).parents[2]

PAGE, SCRIPTS = ROOT / "docs" / "audit.md", ROOT / "docs" / "audit"

SLOW = 6
"""An exported program is made anew in seconds: so many times fewer are asked."""

CALLS = 3
"""How often in a row a reduced program is run."""

UNSUITED = 2
"""The status of a script whose program raises before the pass is tried: it shows nothing."""

PRINTED = re.compile(r"^t\d+$")
"""What drawn programs print."""

DESCRIBED = """
def described(gm):
    # As callers of the pass do.
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    FakeTensorProp(gm, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*arguments(0))
    return gm
"""

CALLED = """
def a_pass(gm):
    result = the_pass({given})
    gm = getattr(result, "graph_module", result) if result is not None else gm
    gm.recompile()
{checks}    return gm
"""

CHECKS = """    gm.graph.lint()
    last = [*gm.graph.nodes][-1]
    if last.op != "output":
        raise AssertionError(f"{last.format_node()} is after the output, so it never runs")
"""


COMPARED = frozenset({"meaning", "effects", "graph"})
"""Laws that a script can show broken: it calls the pass once, and compares what the module then does."""


@frozen
class Audited:
    """What came of one pass."""

    published: Published
    report: PassReport
    outside: PassReport | None
    """On programs of any form, where its contract is narrower."""
    around: PassReport | None
    """On programs around what it looks for."""
    confirmed: dict[str, str] = field(factory=dict)
    """For each law that is broken, what the script of the reduced program printed; empty where it shows nothing."""

    findings: Sequence[Finding] = ()
    """For each law that is broken, the smallest program that a script confirms, or the smallest one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask the passes, print a line for each, and write the page unless only some were asked."""
    parser = argparse.ArgumentParser("python -m tests.upstream.audit_passes", description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="programs for each pass (200)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="for making each mistake small (20)"
    )
    parser.add_argument("only", nargs="*", help="names of passes")
    given = parser.parse_args(arguments)
    found: list[Audited] = []
    for published in PASSES:
        if not given.only or published.name in given.only:
            found.append(audited(published, given.examples, given.seed, given.seconds))
            around = [f"  around: {found[-1].around}"] if found[-1].around is not None else []
            lines = [f"  {law}: {text}" for law, text in found[-1].confirmed.items()]
            sys.stdout.write(
                "\n".join([f"{published.where}: {found[-1].report}", *around, *lines, ""])
            )
            sys.stdout.flush()
    if not given.only:
        PAGE.write_text(page(found, given.examples, given.seed), "utf-8")
    return 0


def audited(published: Published, examples: int, seed: int, seconds: float) -> Audited:
    """Return what came of a pass, and write the scripts of what is wrong."""
    count = examples // SLOW if published.over == "exported_program" else examples
    options: dict[str, Any] = {"over": published.over, "examples": count, "seed": seed}
    report = survey_pass(published.run, contract=published.contract, seconds=seconds, **options)
    anything = evolve(GRAPH, assertions=published.contract.assertions)
    narrow = published.contract not in (anything, ANYTHING) and published.over != "exported_program"
    outside = (
        survey_pass(published.run, contract=anything, seconds=0.0, **options) if narrow else None
    )
    around = None
    if published.looks_for:
        seeds: dict[str, Any] = {**options, "around": published.looks_for}
        around = survey_pass(published.run, contract=published.contract, seconds=seconds, **seeds)
    SCRIPTS.mkdir(exist_ok=True)
    told: dict[str, str] = {}
    shown: dict[str, Finding] = {}
    for each in sorted((*report.findings, *(around.findings if around else ())), key=size):
        if not told.get(each.law):
            told[each.law] = confirmed(published, each)
            shown[each.law] = each if told[each.law] else shown.get(each.law, each)
    return Audited(published, report, outside, around, told, [*shown.values()])


def confirmed(published: Published, found: Finding) -> str:
    """Return what torch alone says of a mistake: the last lines of the script; empty where it sees none."""
    if published.over == "exported_program" or found.law not in COMPARED:
        return ""
    as_given = px.from_fx_pass(
        lambda module: torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    )(found.program)
    script = px.to_script(as_given, rewrite=source_of(published, found.law), calls=CALLS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "script.py"
        path.write_text(script, "utf-8")
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-I", str(path)],
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    lines = (done.stdout if "Traceback" not in done.stderr else done.stderr).strip().splitlines()
    told = [
        line for line in lines if not line.endswith(": missing") and not PRINTED.match(line)
    ]  # of state that is not read
    if found.law == "effects":
        told = _prints(lines, as_given)
    raises = (
        "Traceback" in done.stderr and found.law != "graph"
    )  # the script, and not what it is about
    if not told or told == ["no difference"] or raises or done.returncode == UNSUITED:
        return ""
    (SCRIPTS / f"{slug(published)}_{found.law}.py").write_text(script, "utf-8")
    return "\n".join(told[-3:])


def _prints(lines: Sequence[str], program: px.Program) -> list[str]:
    # The program prints in the first half of the run, and what the pass made of it in the second.
    wanted = (
        sum(getattr(node.do, "name", "") == "aten._print.default" for _, node in program.nodes())
        * CALLS
    )
    count = sum(map(bool, map(PRINTED.match, lines))) - wanted
    return (
        []
        if count == wanted
        else [f"in {CALLS} calls it prints {count} times, where the program prints {wanted} times"]
    )


def size(found: Finding) -> int:
    """Return how many nodes the program of a finding has."""
    return sum(1 for _ in found.program.nodes())


def slug(published: Published) -> str:
    """Return the file name of a pass, without an ending."""
    return re.sub(r"\W+", "_", published.name).strip("_").lower()


def source_of(published: Published, law: str) -> str:
    """Return the source of a function ``a_pass`` that calls a pass, with what it needs."""
    source, given = published.source, "gm"
    parts = ["GraphModule = torch.fx.GraphModule", source]
    if describes(source):
        parts.append(DESCRIBED)
        given = "described(gm)"
    given += ".graph" if published.over == "graph" else ""
    return "\n\n".join(
        [*parts, CALLED.format(given=given, checks=CHECKS if law == "graph" else "")]
    )


# -- the page --------------------------------------------------------------------------------------------------------------------


HEAD = """# Audit of torch's passes

`make audit` checks {count} passes of torch {version} with `purefx.laws.fx_passes.survey_pass`, on up to {examples} generated
programs each, within the contract of the pass (seed {seed}; {fewer} where a pass takes exported programs). {wrong} of them
are wrong on some program. {confirmations} mistakes have a script that needs only torch: it builds the smallest program found,
calls the pass, and compares results, arguments and state.

- *Wrong* counts programs by the law that does not hold ([Check a pass](passes.md#check-a-pass)); links lead to the scripts.
- *Around* counts wrong programs among those that contain the pattern of the pass.
- *Refused* counts programs on which the pass raises an exception.

| pass | contract | changed | wrong | around | refused |
|---|---|---|---|---|---|
"""


def page(found: Sequence[Audited], examples: int, seed: int) -> str:
    """Return the page: a table of the passes that are wrong, with a link for each mistake that a script confirms."""
    wrong = [each for each in found if each.findings]
    confirmations = sum(1 for each in found for told in each.confirmed.values() if told)
    version, fewer = torch.__version__.partition("+")[0], examples // SLOW
    numbers = {
        "examples": examples,
        "seed": seed,
        "fewer": fewer,
        "wrong": len(wrong),
        "confirmations": confirmations,
    }
    right = ", ".join([f"`{each.published.where}`" for each in found if not each.findings])
    rows = "\n".join(map(row, wrong))
    return f"{HEAD.format(count=len(found), version=version, **numbers)}{rows}\n\nNo mistake was found in {right or 'others'}.\n"


def row(each: Audited) -> str:
    """Return the line of a pass in the table."""
    report, around = each.report, each.around
    counts = {found.law: found.count for found in report.findings}
    laws = dict.fromkeys([*counts, *(found.law for found in each.findings)])
    cells = (
        f"`{each.published.where}`",
        told(each.published.contract),
        f"{report.changed} of {report.drawn}",
        ", ".join([f"{linked(each, law)} {counts.get(law, 0)}" for law in laws]),
        "" if around is None else f"{around.wrong} of {around.drawn}",
        sum({**report.raised, **report.refused}.values()),
    )
    return f"| {' | '.join(map(str, cells))} |"


def linked(each: Audited, law: str) -> str:
    """Return the name of a law, with a link to the script that shows it broken."""
    return f"[{law}](audit/{slug(each.published)}_{law}.py)" if each.confirmed.get(law) else law


def told(contract: Contract) -> str:
    """Return a contract in words."""
    absent = [
        name
        for name in ("random", "effects", "views", "regions", "dynamic", "training")
        if not getattr(contract, name)
    ]
    words = [] if contract.writes == "anywhere" else [f"writes {contract.writes}"]
    words += ["state as inputs"] if contract.state == "inputs" else []
    words += [f"no {', '.join(absent)}"] if absent else []
    return "; ".join(
        [*(words or ["any graph"]), *([] if contract.assertions else ["assertions may go"])]
    )


if __name__ == "__main__":
    sys.exit(main())
