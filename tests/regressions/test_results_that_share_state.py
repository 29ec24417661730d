"""A module that gives back its buffer beside something else: who writes the buffer later must stay behind who reads the result.

Cause: of a call that gives back several values, each result was told the state that it shares memory with as the body names it,
without the path of the module; nobody found that state, and a write to it was free to move over the reader.
"""

from __future__ import annotations

from purefx.ir.effects.declared import node_effects
from purefx.ir.effects.dependencies import dependencies
from tests.transforms.small import tree

PROGRAM = """
    graph @""(x) {
      a = call @a(x) as a
      n = operator.getitem(a, 0)
      y = operator.getitem(a, 1)
      z = aten.add.Tensor(n, y)
      w = call @w(x) as a.w
      return (z,)
    }
    graph @a(x) {
      n = get n
      y = aten.neg.default(x)
      return (n, y)
    }
    graph @w(x) {
      n = get "/a.n"
      s = aten.copy_.default(n, x)
      return s
    }
"""


def test_a_write_stays_behind_the_reader_of_a_result() -> None:
    program = tree(PROGRAM, "state {\nbuffer a.n: f32[2]\n}")
    assert node_effects(program, program.main)[0].results[0].slots == ("a.n",)
    assert 3 in dependencies(program, program.main)[4]
