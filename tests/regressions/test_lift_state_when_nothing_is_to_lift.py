"""lift_state leaves an outlined program alone that takes its state as inputs already; it used to refuse it.

One idea: what a transformation says about its requirements (``lacks``) and what it does when called agree.
"""

from __future__ import annotations

import purefx as px
from tests.programs import NEG, flat


def test_an_outlined_program_without_reads() -> None:
    program = flat([px.Node("y", NEG, (px.Ref("x"),), (), (px.Frame("a"),))], px.Ref("y"), "x")
    outlined = px.outline(program.evolve(facts=program.facts | {"state as inputs"}))
    assert px.lift_state.lacks(outlined.facts) is None
    assert px.lift_state(outlined) is outlined
