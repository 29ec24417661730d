"""Run pyright over the packages under the names that they are installed as: ``make check`` calls this.

``ir/`` is ``purefx.ir``, which no type checker can see from the folders; so ``build/tree/purefx`` is a
package made of links to the sources, as ``package-dir`` in pyproject.toml has it, and pyright reads that.  Each class is
then known under one path only.  Findings are printed with the paths of the sources.  What is checked, and how
strictly, is in pyproject.toml.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "tree"


def link_tree(root: Path, tree: Path) -> dict[Path, Path]:
    """Make the tree of links anew; return which source each link shows."""
    places: dict[str, str] = tomllib.loads((root / "pyproject.toml").read_text())["tool"][
        "setuptools"
    ]["package-dir"]
    shutil.rmtree(tree, ignore_errors=True)
    links: dict[Path, Path] = {}
    for package, folder in places.items():
        for source in sorted((root / folder).rglob("*.py*")):
            if source.suffix == ".py" or source.name == "py.typed":
                links[tree.joinpath(*package.split("."), source.relative_to(root / folder))] = (
                    source
                )
    for link, source in links.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(source)
    return links


def main() -> int:
    """Return pyright's status."""
    links = link_tree(ROOT, TREE)
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *sys.argv[1:]]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    text = done.stdout
    for link, source in links.items():
        text = text.replace(str(link), str(source))
    sys.stdout.write(text.replace(f"{ROOT}/", ""))
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
