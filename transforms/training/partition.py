"""``partition_joint``: a joint program becomes a forward and a backward program, with what the one keeps for the other.

``phases`` says which node is of which half, ``candidates`` what may be computed again, a policy what is, ``crossing`` what
crosses then, and ``halves`` writes both programs.  The law: the forward followed by the backward means the joint program.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from attrs import field, frozen

from ...ir.errors import ArgumentError, NamingError
from ...ir.expression import Expr
from ...ir.graph import Frame, Get
from ...ir.names import did_you_mean
from ...ir.own_operators import is_boundary
from ...ir.persistent import collector_paused, pmap
from ...ir.program import Program
from ...ir.signature import StateInput, UserInput
from ...ir.taking import a_function, a_program, kind_of
from ...ir.verify import check
from ..cleanup import infer
from ..effect_tokens import remove_effect_tokens
from ..inline import inline
from .candidates import Candidate, Table
from .crossing import crossing
from .halves import Halves
from .phases import Shape, is_joint
from .policies import Policy, save_all
from .sizes import bytes_of, example_bytes
from .snapshots import with_snapshots

__all__ = ["Partition", "Saved", "partition_joint"]


@frozen
class Saved:
    """A value that the forward keeps for the backward.

    >>> Saved("relu", "intermediate", 16, 16).counted
    16
    """

    name: str
    """Its name in the joint program, and as an input of the backward."""
    kind: str
    """``"input"``: an argument of the caller; ``"state"``; ``"intermediate"``: a tensor that was computed; ``"size"``: a number;
    ``"object"``: anything else."""
    bytes: Expr = field(repr=str)
    """What it takes, as an expression of sizes."""
    example: int
    """The same at the sizes of the example."""
    call: Frame | None = None
    """The innermost module call that it is computed in."""
    copied: bool = False
    """Whether it is state or an argument that the forward changes, so that it is kept as a copy."""

    @property
    def counted(self) -> int:
        """What is kept in memory for it, at the sizes of the example: nothing for what its owner keeps anyway."""
        return 0 if self.kind in ("input", "state") and not self.copied else self.example


@frozen
class Partition:
    """The two halves of a joint program, each a program.

    >>> from purefx.ir import Graph
    >>> empty = Program.of({"": Graph((), (), ())})
    >>> Partition(empty, empty).saved_bytes
    0
    """

    forward: Program = field(repr=False)
    """Takes what the joint program takes but for tangents; gives its user outputs or its loss, then the saved values."""
    backward: Program = field(repr=False)
    """Takes the saved values, then the tangents; gives the gradients.  State it reads itself."""
    saved: tuple[Saved, ...] = ()
    """What crosses, in the order of the last outputs of the forward and of the inputs of the backward."""
    recomputed: tuple[str, ...] = ()
    """The nodes that both halves run, in order."""

    @property
    def saved_bytes(self) -> int:
        """What is kept in memory between the two, at the sizes of the example."""
        return sum(one.counted for one in self.saved)


def partition_joint(program: Program, *, policy: Policy | None = None) -> Partition:
    """Cut a joint program into a forward and a backward program.

    Laws: the forward followed by the backward means the joint program (outputs, gradients, state, mutated inputs, to the last
    bit); no policy changes a number; one program and policy give one cut.  What draws random numbers or has effects runs once; a
    value is computed again only where the memory that it is computed of is as it was, and is saved otherwise.

    Args:
        program: a joint program: it gives gradients, and has a loss or takes tangents.  Module calls are inlined first.
        policy: which values are kept; by default all that the forward computes and the backward needs.  A function from the
            candidates, in order, to the names of those to keep will do; ``px.training`` has some.

    Returns:
        Both programs, flat, and what crosses.

    Raises:
        PartitionError: an output of the caller depends on a tangent, or a region lies in both halves.
        InvalidProgram: the program is not valid.
        ArgumentError: it gives no gradients; the policy is none, or gives something else than names.
        NamingError: the policy names what is no candidate.

    >>> import torch
    >>> from purefx import training
    >>> joint = training.capture_joint(torch.nn.Tanh(), (torch.ones(2, requires_grad=True),))
    >>> [(one.name, one.kind, one.example) for one in partition_joint(joint).saved]
    [('tanh', 'intermediate', 8)]
    """
    rule: Policy = save_all() if policy is None else a_function(policy, "policy", *A_POLICY)
    check(a_program(program, "partition_joint"))
    if not is_joint(program):
        raise ArgumentError(
            "partition_joint takes a joint program, and this one gives no gradients; px.training.capture_joint(module, args) "
            "makes one"
        )
    with collector_paused():
        flat = infer(with_snapshots(_without_boundaries(inline(remove_effect_tokens(program)))))
        table = Table(Shape(flat))
        found = crossing(table.candidates, _kept(table, rule), also=table.needed)
        halves = Halves(flat, table, found)
        saved = tuple([_described(halves, table, name) for name in halves.saved])
        twice = table.after(halves.kept)
        again = tuple([name for name in table.order if name in found.again and table.shape.position[name] in twice])
        return Partition(check(halves.forward()), check(halves.backward()), saved, again)


def _without_boundaries(program: Program) -> Program:
    # A call signature speaks of a whole call, of which each half has a part.
    if not len(program.call_signatures):
        return program
    graph = program.main
    kept = graph.with_nodes([node for node in graph.nodes if not is_boundary(node)])
    return program.with_main(kept, call_signatures=pmap())


A_POLICY = ("a function from candidates to the names of those to keep", "px.training.save_all() is one")


def _kept(table: Table, policy: Policy) -> Collection[str]:
    candidates: Sequence[Candidate] = tuple(table.candidates.values())
    kept: object = policy(candidates)
    if isinstance(kept, str) or not isinstance(kept, Collection):
        raise ArgumentError(f"a policy gives the names of the values to keep, as a set; this one gave {kind_of(kept)}")
    for name in kept:
        if name not in table.candidates:
            raise NamingError(f"the policy keeps {name!r}, which is no candidate{did_you_mean(str(name), table.candidates)}")
    return frozenset(kept)


def _described(halves: Halves, table: Table, name: str) -> Saved:
    value = table.graph.metas[name].get("val")
    node, spec = table.graph.by_name.get(name), halves.specs.get(name)
    state = type(spec) is StateInput or (node is not None and type(node.do) is Get)
    kind = "state" if state else "input" if type(spec) is UserInput else table.kind_of(name)
    call = node.stack[-1] if node is not None and node.stack else None
    return Saved(name, kind, bytes_of(value), example_bytes(value), call, table.changes_outside(name))
