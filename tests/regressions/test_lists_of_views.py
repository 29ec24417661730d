"""Views that come in a list: ``split``, ``chunk``, ``unbind``.

Cause: the schema of a result that is a list, ``Tensor(a)[]``, says nothing about what its items share; the operators
counted as computing something new, and a write into an item was moved over a read of the whole.  The star of the
argument, ``Tensor(a -> *)``, says it now.
"""

from __future__ import annotations

import pytest
import torch

import purefx as px
from purefx.ir.effects.dependencies import dependencies
from purefx.ir.effects.registered import effects_of

PROGRAM = """program {
  takes {
    user x: f32[4, 4]
  }
  gives {
    user
  }
  graph @""(x) {
    parts = aten.split.Tensor(x, 2)
    part = operator.getitem(parts, 1)
    written = aten.mul_.Tensor(part, 8)
    sum = aten.add.Tensor(x, x)
    return (sum,)
  }
}"""

OPERATORS = {
    torch.ops.aten.split.Tensor: (2,),
    torch.ops.aten.split.sizes: ([1, 3],),
    torch.ops.aten.split_with_sizes.default: ([1, 3],),
    torch.ops.aten.chunk.default: (2,),
    torch.ops.aten.unbind.int: (),
    torch.ops.aten.tensor_split.sections: (2,),
    torch.ops.aten.tensor_split.indices: ([1],),
    torch.ops.aten.hsplit.int: (2,),
    torch.ops.aten.vsplit.int: (2,),
}


def test_a_read_of_the_whole_stays_after_a_write_into_an_item() -> None:
    program = px.parse(PROGRAM)
    assert dependencies(program, program.main)[3] == [2]


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
def test_what_shares_memory_is_said_to(operator: torch._ops.OpOverload) -> None:
    x = torch.zeros(4, 4)
    parts = operator(x, *OPERATORS[operator])
    assert {part.untyped_storage().data_ptr() for part in parts} == {x.untyped_storage().data_ptr()}
    assert [place.name for place in effects_of(operator).aliases] == ["self"]
