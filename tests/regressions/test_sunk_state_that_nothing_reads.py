"""A mutation of state that was sunk and that nothing reads is refused by name; it used to end in a KeyError.

One idea: what can be looked up of a program (``observed``) is true: state that is no input is not "state as inputs".
"""

from __future__ import annotations

import pytest

import purefx as px

TEXT = """program {
  state {
    buffer s: f32[2]
  }
  takes {
    state s
    user x: f32[2]
  }
  gives {
    state s
  }
  graph @""(s, x) {
    return (x,)
  }
}"""


def test_it_is_refused() -> None:
    sunk = px.sink_state(px.parse(TEXT))
    with pytest.raises(px.PipelineError, match="inplace_mutations requires a program that is 'state as inputs'"):
        px.inplace_mutations(sunk)
    lifted = px.lift_state(sunk)
    assert px.inplace_mutations(lifted).main.nodes[0].name == "copy_"
