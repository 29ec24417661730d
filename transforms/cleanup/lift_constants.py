"""``lift_constants``: objects that stand among the arguments of nodes become state with a name.

One idea: it is what ``import_fx`` does at the door (``ir/constants.py``), for programs that were rewritten since: a rewrite may
put ``torch.tensor(3.0)`` where it is needed, and this makes a program of the result.
"""

from __future__ import annotations

from ...ir.constants import with_constants
from ...ir.program import Program
from ..transformation import transformation

__all__ = ["lift_constants"]


@transformation(
    proven=True,
    forgets={"state as inputs"},
    laws=["no object is among the arguments afterwards", "one object is one slot", "only reads are added"],
)
def lift_constants(program: Program) -> Program:
    """Make state of the tensors, script objects and other objects that stand as literals among arguments.

    Before::

        y = aten.mul.Tensor(x, tensor(3.))                  in scale

    After::

        y_constant = get scale._constant0                   in scale
        y = aten.mul.Tensor(x, y_constant)                  in scale

    One object is one slot, of the innermost module around all that use it; an object that is state already is read from where
    it is.  A ``torch.nn.Parameter`` becomes a parameter, anything else a constant, which ``state_dict`` does not have.

    A program with tensors among its arguments is not valid: nothing would say which of them share memory, so nothing could say
    which nodes may change places.  This is the one transformation that takes such a program, so let it be the first after the
    rewrite.  It takes no fuel, because a program with half of its constants is no program.

    Args:
        program: a program at any stage, valid but for objects among the arguments.  In a flat program that takes its state as
            inputs they are reads all the same; ``lift_state`` makes inputs of them.

    Returns:
        The program with the constants in its state.

    Raises:
        UnsupportedProgram: a literal is a module, or a fake tensor.

    >>> import torch, purefx as px
    >>> node = px.Node("y", px.Op("toy.mul"), (px.Ref("x"), torch.tensor(3.0)), stack=(px.Frame("scale"),))
    >>> program = px.Program.of({"": px.Graph((px.Input("x"),), (node,), px.Ref("y"))})
    >>> lifted = px.lift_constants(program)
    >>> lifted.main.nodes[0].do, lifted.main.nodes[1].args, lifted.state["scale._constant0"].value
    (Get(slot='scale._constant0'), (Ref(name='x'), Ref(name='y_constant')), tensor(3.))
    """
    return with_constants(program)
