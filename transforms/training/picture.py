"""``picture``: a partition as a mermaid graph: module calls of both halves, and what is kept between them.

It says what is where, and no more: programs print themselves, and ``report`` draws one.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...ir.graph import Frame, Node
from ...ir.program import Program
from ...ir.signature import UserInput
from .partition import Partition, Saved

__all__ = ["picture"]


def picture(cut: Partition, *, depth: int = 1) -> str:
    """Return a partition as mermaid text: thick lines are kept, with their bytes; dotted ones are the caller's own.

    Args:
        cut: what ``partition_joint`` gave.
        depth: how many module calls deep nodes are told apart; those in one call are one box, a node in none is its own.

    >>> import torch
    >>> from purefx import training
    >>> joint = training.capture_joint(torch.nn.Tanh(), (torch.ones(2, requires_grad=True),))
    >>> print(picture(training.partition_joint(joint)).splitlines()[-1].strip())
    f1 == "tanh, 8 bytes" ==> b1
    """
    count = len(cut.saved)
    handed = [getattr(arg, "name", "") for arg in cut.forward.main.output[len(cut.forward.main.output) - count :]]
    forward = _Half("f", cut.forward, depth, given=len(cut.forward.main.output) - count, end="results")
    backward = _Half("b", cut.backward, depth, given=len(cut.backward.main.output), end="gradients", kept=cut.saved)
    lines = ["graph LR", *_framed("forward", forward), *_framed("backward", backward)]
    for name, one in zip(handed, cut.saved, strict=True):
        for user in backward.users.get(one.name, {}):
            said = f"{one.name}, {one.bytes} bytes" if one.counted else one.name
            arrow = f'== "{said}" ==>' if one.counted else f'-. "{said}" .->'
            lines.append(f"  {forward.box_of(name)} {arrow} {user}")
    return "\n".join(lines)


def _framed(name: str, half: _Half) -> Iterator[str]:
    yield f"  subgraph {name}"
    yield from [f"    {key}{shape}" for key, shape in half.boxes.items()]
    yield from [f"    {begin} --> {end}" for begin, end in half.lines]
    yield "  end"


class _Half:
    """The boxes of one half, and the lines between them."""

    def __init__(self, letter: str, program: Program, depth: int, *, given: int, end: str, kept: tuple[Saved, ...] = ()) -> None:
        self.letter = letter
        self.depth = depth
        self.boxes: dict[str, str] = {}
        """What each box looks like."""
        self.keys: dict[object, str] = {}
        self.of: dict[str, str] = {}
        """The box of each value that has one."""
        self.lines: dict[tuple[str, str], None] = {}
        self.users: dict[str, dict[str, None]] = {one.name: {} for one in kept}
        """The boxes that use what was kept."""
        for formal, spec in program.inputs:
            if type(spec) is UserInput and formal.name not in self.users and formal.name in program.main.users:
                self.of[formal.name] = self._box(formal.name, f'(["{formal.name}"])')
        for node in program.main.nodes:
            self._use(node.refs(), self._of_node(node))
        self._use([arg.name for arg in program.main.output[:given] if hasattr(arg, "name")], self._box((), f"([{end}])"))

    def box_of(self, name: str) -> str:
        """Return the box of a value."""
        return self.of.get(name) or self._box(name, f'(["{name}"])')

    def _of_node(self, node: Node) -> str:
        call = node.stack[: self.depth]
        box = self._box(call, f'["{_plain(call[-1])}"]') if call else self._box(node.name, f'["{node.name}"]')
        self.of[node.name] = box
        return box

    def _use(self, names: list[str], box: str) -> None:
        for name in names:
            if name in self.users:
                self.users[name][box] = None
            elif (begin := self.of.get(name, box)) != box:
                self.lines[begin, box] = None

    def _box(self, key: object, shape: str) -> str:
        if key not in self.keys:
            self.keys[key] = f"{self.letter}{len(self.keys)}"
            self.boxes[self.keys[key]] = shape
        return self.keys[key]


def _plain(frame: Frame) -> str:
    return str(frame).replace('"', "'")
