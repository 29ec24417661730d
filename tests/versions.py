"""``make versions``: README, examples and tests on every supported release of torch and Python.

Each row makes an environment in ``build/versions``, imports purefx with warnings as errors, runs the chosen tests, and replaces
its line in the table of docs/development.md.  Whatever is there already is used again.

The default wheel of torch needs libraries of CUDA, which take gigabytes.  It is installed without them; where the loader misses
one, a stand-in gets its name, whose functions all return an error, so torch finds no GPU.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from attrs import frozen

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build" / "versions"
PAGE = ROOT / "docs" / "development.md"

SMOKE = (
    "readme/test_readme.py", "real/test_examples.py", "upstream/test_torch_private.py", "upstream/test_effects_of_torch.py",
    "security/test_allowed.py", "ir/test_communication.py", "importing/test_fx.py", "transforms/test_outline.py",
    "transforms/test_shared_bodies.py", "transforms/test_infer.py", "lowering/test_lower.py", "to_ep/test_signature.py",
)  # fmt: skip
SELECTIONS = {
    "smoke": tuple([f"tests/{name}" for name in SMOKE]),
    "usual": ("tests", "-m", "not models and not slow and not deep"),
}
IMPORT = "import purefx as px; [getattr(px, name) for name in dir(px)]; import purefx.laws.checking"
NOT_RUN = {"torch", "ruff", "pyright"}
"""Requirements that a row does not install: torch has a step of its own, and the static checks are the same everywhere."""


@frozen
class Row:
    """One line of the table."""

    torch: str
    python: str
    dependencies: str
    """``oldest`` (the floors of pyproject.toml), ``pinned`` (constraints.txt) or ``newest``."""

    @property
    def name(self) -> str:
        """What it is called in the table and on disk."""
        return f"torch {self.torch}, Python {self.python}, {self.dependencies}"

    @property
    def folder(self) -> Path:
        """Where its environment is."""
        return BUILD / f"{self.torch}-{self.python}-{self.dependencies}"


ROWS = (
    Row("2.13.0", "3.11", "oldest"), Row("2.13.0", "3.12", "pinned"), Row("2.14.1", "3.12", "pinned"),
    Row("2.14.1", "3.13", "pinned"), Row("2.15.0", "3.11", "pinned"), Row("2.15.0", "3.13", "newest"),
)  # fmt: skip


def run(*command: str | Path, env: dict[str, str] | None = None) -> str:
    """Run a command and return what it printed.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(
            f"{' '.join(map(str, command))[:300]}\n{done.stdout[-6000:]}{done.stderr[-2000:]}"
        )
    return done.stdout


def interpreter(version: str) -> Path | None:
    """Return the interpreter of a Python, of pyenv (whose commands on the path run one version only) or on the path."""
    found = shutil.which(f"python{version}")
    return max(
        Path.home().glob(f".pyenv/versions/{version}.*/bin/python"),
        default=Path(found) if found else None,
    )


def requirements(project: dict[str, Any], packages: Path) -> list[str]:
    """Return what a row installs: for purefx with its extras, and for torch but for CUDA, which only one platform needs."""
    extras: dict[str, list[str]] = project["optional-dependencies"]
    mine = [
        *project["dependencies"],
        *[one for extra in ("laws", "store", "demo", "docs", "dev") for one in extras[extra]],
    ]
    (metadata,) = packages.glob("torch-*.dist-info/METADATA")
    of_torch = re.findall(
        r"^Requires-Dist: ([^;\n]*)$", metadata.read_text(encoding="utf-8"), re.MULTILINE
    )
    return [one for one in (*mine, *of_torch) if re.split(r"[^\w-]", one)[0] not in NOT_RUN]


def constraints(row: Row, wanted: list[str]) -> str:
    """Return the lines of a constraints file for the dependencies of a row."""
    if row.dependencies == "oldest":
        return "\n".join(
            [
                one.replace(">=", "==")
                for one in wanted
                if re.match("attrs|pyrsistent|hypothesis|safetensors|transf", one)
            ]
        )
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    return (
        re.sub(r"^torch==.*$", "", pins, flags=re.MULTILINE) if row.dependencies == "pinned" else ""
    )


def stand_ins(libraries: Path) -> None:
    """Give torch's libraries a stand-in for each library that the loader does not find, with the functions they look up."""
    files = sorted(libraries.glob("*.so"))
    missing = {
        name for file in files for name in re.findall(r"(\S+) => not found", run("ldd", file))
    }
    if not missing:
        return
    named = re.findall(
        r" U ((?:cu|nv|nccl)\w+)(?:@(\S+))?$",
        run("nm", "-D", "--undefined-only", *files),
        re.MULTILINE,
    )
    versions = {
        version: {name for name, of in named if of == version} for _, version in named if version
    }
    with tempfile.TemporaryDirectory() as folder:
        code, script, library = (
            Path(folder) / name for name in ("code.c", "versions", "library.so")
        )
        code.write_text(
            "".join([f"int {name}(void) {{ return 100; }}\n" for name, _ in sorted(set(named))])
        )  # no device
        script.write_text(
            "".join(
                [
                    f"{version} {{ {'; '.join(sorted(of))}; }};\n"
                    for version, of in sorted(versions.items())
                ]
            )
        )
        run("cc", "-w", "-shared", "-fPIC", f"-Wl,--version-script={script}", "-o", library, code)
        for name in missing:
            shutil.copy(library, libraries / name)


def install(row: Row, python: Path) -> None:
    """Make the environment of a row, unless it is there."""
    done = row.folder / "installed"
    if done.exists():
        return
    run(python, "-m", "venv", "--clear", row.folder)
    pip = [
        row.folder / "bin" / "python",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    limits = row.folder / "constraints.txt"
    limits.write_text(f"torch=={row.torch}\n")
    env = {"PIP_CONSTRAINT": limits.as_uri()}
    run(*pip, "--no-deps", "torch", env=env)
    (packages,) = row.folder.glob("lib/python*/site-packages")
    stand_ins(packages / "torch" / "lib")
    wanted = requirements(
        tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"], packages
    )
    limits.write_text(constraints(row, wanted))
    run(*pip, *wanted, env=env)
    run(*pip, "--no-deps", "--no-build-isolation", "--editable", ROOT, env=env)
    done.touch()


def check(row: Row, select: str) -> str:
    """Run what was chosen in the environment of a row, and return the result for the table."""
    python, env = row.folder / "bin" / "python", {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    run(python, "-W", "error", "-c", IMPORT, env=env)
    log = row.folder / f"{select}.txt"
    with log.open("w", encoding="utf-8") as stream:
        command = [python, "-m", "pytest", "-p", "no:cacheprovider", *SELECTIONS[select]]
        subprocess.run(
            command, cwd=ROOT, env={**os.environ, **env}, stdout=stream, stderr=stream, check=False
        )
    last = log.read_text(encoding="utf-8").splitlines()[-1]
    return re.sub(r" in [\d.]+s.*", "", last).strip("= ")


def write(row: Row, select: str, result: str) -> None:
    """Replace the line of a row in the table, or add it."""
    before, rows, after = re.split(
        r"(?<=<!-- versions -->\n)|(?=<!-- end of versions -->)", PAGE.read_text(encoding="utf-8")
    )
    head, lines = rows.splitlines()[:2], rows.splitlines()[2:]
    date = datetime.now(UTC).date().isoformat()
    line = f"| {row.torch} | {row.python} | {row.dependencies} | `{select}` | {result} | {date} |"
    start = line[: line.index(f"| `{select}`")]
    kept = [one for one in lines if not one.startswith(start)]
    PAGE.write_text(
        before + "\n".join([*head, *sorted([*kept, line])]) + "\n" + after, encoding="utf-8"
    )


def main() -> int:
    """Run the rows whose names have all of the words."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.versions", description="Run tests on each supported release."
    )
    parser.add_argument("words", nargs="*", help="parts of the names of rows, as: 2.15 3.13")
    parser.add_argument("--select", choices=SELECTIONS, default="usual", help="which tests")
    chosen = parser.parse_args()
    failed = 0
    for row in [one for one in ROWS if all(word in one.name for word in chosen.words)]:
        python = interpreter(row.python)
        if python is None:
            print(f"{row.name}: there is no Python {row.python} here", flush=True)
            continue
        try:
            install(row, python)
            result = check(row, chosen.select)
        except RuntimeError as error:
            print(error, flush=True)
            result = "does not run"
        failed += "passed" not in result or "failed" in result or "error" in result
        print(f"{row.name}: {result}", flush=True)
        write(row, chosen.select, result)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
