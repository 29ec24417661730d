"""Runs mutants of saved programs in its own process: ``python -m tests.security.trying FOLDER SEED FIRST COUNT SECONDS``."""

from __future__ import annotations

import json
import random
import resource
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from attrs import define, field

import purefx as px
from purefx.ir.store.container import STRUCTURE
from tests.security.bases import Base, Point, bases
from tests.security.mutating import Parts, mutated_bytes, mutated_json, mutated_text

SECONDS_EACH = 10
"""How long one mutant may take."""

MEMORY = 3 << 30
"""How much address space all of them may take beyond what torch has."""

FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.",
    "socket.",
    "ctypes.dlopen",
    "shutil.",
    "pty.",
)
"""Events that nothing here has a reason for."""


class TimeIsUp(BaseException):
    """Raised by the alarm: no error that anything catches."""


@define
class Watch:
    """What the audit hook looks at: which events are allowed at the moment."""

    folder: str
    loading: bool = False
    seen: list[str] = field(factory=list)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event.startswith(FORBIDDEN):
            self.seen.append(f"{event} {args!r}"[:200])
        elif event == "open" and isinstance(args[1], str) and set(args[1]) & set("wax+"):
            if not str(args[0]).startswith((self.folder, "/dev/")):
                self.seen.append(f"{event} {args!r}"[:200])
        elif self.loading and event == "import" and args[0].partition(".")[0] not in sys.modules:
            self.seen.append(f"{event} {args[0]}")


@define
class Run:
    """One run over many mutants."""

    folder: Path
    watch: Watch
    files: list[tuple[Base, bytes, Parts | None]]
    counts: dict[str, int] = field(factory=dict)

    def mutant(self, draw: random.Random) -> tuple[Base, px.Program] | None:
        """Return a mutant that was accepted, and the program that it came from."""
        base, raw, parts = draw.choice(self.files)
        self.watch.loading = True
        try:
            return base, self._text(
                base, parts, draw
            ) if parts is None or draw.random() < 0.3 else self._file(raw, parts, draw)
        except px.PurefxError as error:
            str(error)
            self._count("refused")
            return None
        finally:
            self.watch.loading = False

    def _text(self, base: Base, parts: Parts | None, draw: random.Random) -> px.Program:
        self._count("texts")
        given = _values(base.program) if parts is None or draw.random() < 0.8 else None
        program = px.parse(mutated_text(base.program.text(), draw), state=given, types=[Point])
        found = px.verify(program)
        if found:
            raise px.errors.InvalidProgram(found)
        return program

    def _file(self, raw: bytes, parts: Parts, draw: random.Random) -> px.Program:
        text = parts.structure["program"]
        kinds: dict[str, Callable[[], bytes]] = {
            "bytes": lambda: mutated_bytes(raw, draw),
            "headers": lambda: parts.whole(parts.structure, mutated_json(parts.header, draw)),
            "structures": lambda: parts.whole(mutated_json(parts.structure, draw)),
            "programs": lambda: parts.whole(
                {**parts.structure, "program": mutated_text(text, draw)}
            ),
        }
        [kind] = draw.choices(list(kinds), [2, 1, 4, 7])
        self._count(kind)
        path = self.folder / "mutant.purefx"
        path.write_bytes(kinds[kind]())
        return px.load(path, types=[Point])

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    def tried(self, number: int, seed: int) -> list[dict[str, Any]]:
        """Return what is wrong with what happens to one mutant."""
        draw = random.Random(f"{seed} {number}")
        found: list[dict[str, Any]] = []
        told = self.guarded("load", lambda: self.mutant(draw), found)
        if told is not None:
            self._count("accepted")
            base, program = told
            for name, use in uses(base, program, self.folder, draw):
                self.guarded(name, use, found)
        for event in self.watch.seen:
            found.append({"door": "audit", "error": event})
        self.watch.seen.clear()
        return [{"number": number, **entry} for entry in found]

    def guarded(self, name: str, use: Callable[[], Any], found: list[dict[str, Any]]) -> Any:
        try:
            with alarm(SECONDS_EACH):
                return use()
        except px.PurefxError as error:
            try:
                str(error)
            except Exception as worse:
                found.append({"door": f"{name}: str of its error", "error": repr(worse)})
        except (Exception, TimeIsUp) as error:
            if not is_of_an_operator(error):
                found.append(
                    {
                        "door": name,
                        "error": f"{type(error).__name__}: {error}"[:300],
                        "at": place_of(error),
                    }
                )
        return None


def is_of_an_operator(error: BaseException) -> bool:
    """Say whether an error was raised by an operator while a program ran: it bears a note that says which node ran."""
    return any("while running" in note for note in getattr(error, "__notes__", ()))


def place_of(error: BaseException) -> list[str]:
    """Return the last places of ours that an error passed."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames][-7:]


@contextmanager
def alarm(seconds: float) -> Generator[None]:
    """Raise ``TimeIsUp`` in what takes longer."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


TRANSFORMATIONS = (
    px.deduplicate, px.dispatch, px.expand, px.functionalize, px.infer,
    px.inline, px.inplace_mutations, px.insert_ivals, px.join, px.lift_constants, px.lift_state, px.move_non_tensor_nodes,
    px.name_inputs, px.normalize_stacks, px.outline, px.relay_skips, px.remove_effect_tokens, px.sink_state, px.transform,
)  # fmt: skip


def uses(
    base: Base, program: px.Program, folder: Path, draw: random.Random
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Iterate over what can be done with a program, each with its name; some of it for each mutant."""
    yield "str", lambda: program.text()
    yield "digest", lambda: px.digest(program)
    yield "parse", lambda: px.parse(program.text(), state=_values(program), types=[Point])
    yield "stats", lambda: str(px.stats(program))
    yield "save", lambda: px.save(program, folder / "again.purefx")
    yield "diff", lambda: str(px.diff(base.program, program))
    yield "mermaid", lambda: px.mermaid(program)
    yield "verify(infer=True)", lambda: list(map(str, px.verify(program, infer=True)))
    for transformation in draw.sample(TRANSFORMATIONS, 5):
        name = str(getattr(transformation, "__name__", transformation))
        yield (
            name,
            lambda transformation=transformation: _transformed(program, transformation, draw),
        )
    yield draw.choice(_others(program, base))
    if draw.random() < 0.5:
        yield "to_ep", lambda: px.to_ep(program)
    for to in ("graph_module", "interpreter"):
        yield f"lower({to})", lambda to=to: _called(px.lower(program, to=to), base, draw)


def _values(program: px.Program) -> dict[str, Any]:
    return {name: slot.value for name, slot in program.state.pairs}


def _transformed(program: px.Program, transformation: Any, draw: random.Random) -> None:
    result = transformation(program)
    found = [] if result is program else list(px.verify(result))
    if any(violation.rule == "mutations" for violation in found):
        # This rule compares what meta says, which may be wrong: a transformation that brings a right one to light (`infer`, or
        # `inline` from a body) shows what it hid.
        told = {
            violation.rule
            for violation in (*px.verify(program, infer=True), *px.verify(px.infer(program)))
        }
        found = [] if told & {"inferred-meta", "mutations"} else found
    assert not found, f"the result is not valid: {found[0]}"
    if result is not program and draw.random() < 0.3:
        px.lower(result)


def _others(program: px.Program, base: Base) -> list[tuple[str, Callable[[], Any]]]:
    names = [node.name for node in program.main.nodes]
    tags = {name: "ab"[number >= len(names) // 2] for number, name in enumerate(names)}
    linear = next((module.path for module in program.modules if module.path), "")
    return [
        ("split_by_tags", lambda: px.split_by_tags(_sunk(program), ["a", "b"], tag_of=tags)),
        ("split_balanced", lambda: px.split_balanced(_sunk(program), 2)),
        ("swap_modules", lambda: px.swap_modules(program, {linear: torch.nn.Identity()})),
        ("lower_stages", lambda: px.lower_stages(program)),
        ("bound names", lambda: px.name_inputs(program, ["a", "b"])),
        ("parts", lambda: (px.parts(program), px.split_provenance(program))),
        ("restore_names", lambda: px.restore_names(program, _values(base.program))),
    ]


def _sunk(program: px.Program) -> px.Program:
    return (
        program
        if any(type(node.do) is px.Call for _, node in program.nodes())
        else px.sink_state(program)
    )


def _called(module: Any, base: Base, draw: random.Random) -> None:
    args, kwargs = base.args, dict(base.kwargs)
    odd = tuple(draw.choice((None, 1, "x", [1], {}, torch.ones(3))) for _ in args)
    calls = [
        (args, kwargs),
        ((), {}),
        ((*args, 1), kwargs),
        (args, {**kwargs, "odd": 1}),
        (odd, kwargs),
    ]
    for given, named in draw.sample(calls, 3):
        with suppress(px.PurefxError):
            module(*given, **named)
    str(module)
    for part in draw.sample(list(module.modules()), 1):
        _ = getattr(part, "graph", None), getattr(part, "code", None)


def prepared(folder: Path) -> Run:
    """Save the programs, and set the bounds of this process."""
    torch.set_num_threads(1)
    signal.signal(signal.SIGALRM, _raise)
    warnings.simplefilter("ignore")
    files: list[tuple[Base, bytes, Parts | None]] = []
    for base in bases():
        try:
            px.save(base.program, folder / "base.purefx")
            raw = (folder / "base.purefx").read_bytes()
            files.append((base, raw, Parts(raw, STRUCTURE)))
        except px.errors.UnsupportedProgram:
            files.append((base, b"", None))
    # What is made lazily is made before the hook looks.
    watch = Watch(str(folder))
    run = Run(folder, watch, files)
    found: list[dict[str, Any]] = []
    for base, _, _ in files:
        for name, use in uses(base, base.program, folder, random.Random(0)):
            run.guarded(name, use, found)
    for finding in found:
        report({"number": -1, **finding})
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, resource.RLIM_INFINITY))
    sys.addaudithook(watch)
    return run


def report(found: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(found) + "\n")


def _raise(*_: object) -> None:
    raise TimeIsUp


def main(folder: Path, seed: int, first: int, count: int, seconds: float) -> None:
    """Try mutants until all were tried or the time is up."""
    run = prepared(folder)
    ends, tried = time.monotonic() + seconds, 0
    for number in range(first, first + count):
        if time.monotonic() > ends:
            break
        (folder / "number").write_text(str(number))
        for finding in run.tried(number, seed):
            report(finding)
        tried += 1
    report({"tried": tried, **run.counts})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:5]), float(sys.argv[5]))
