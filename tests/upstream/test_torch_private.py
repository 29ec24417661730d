"""The private names of torch that purefx touches are where ``ir/torch_private/`` says, and mean what it needs."""

from __future__ import annotations

import inspect
import subprocess
import sys
import weakref
from typing import Any

import pytest
import torch
import torch.fx
from torch.utils.checkpoint import checkpoint

from purefx.ir import torch_private


def test_symbolic_sizes_have_the_numbers_of_the_export() -> None:
    """A symbolic size knows what the exporter saw, without being compared or converted; other sizes do not."""
    size = torch.export.Dim("n", min=2)
    ep = torch.export.export(torch.nn.ReLU(), (torch.ones(3, 2),), dynamic_shapes=({0: size},))
    rows = next(node for node in ep.graph.nodes if node.op == "placeholder").meta["val"].shape[0]
    env = rows.node.shape_env
    before = len(env.guards)
    assert torch_private.size_number(rows) == 3
    assert torch_private.size_number(rows * 2 + 1) == 7
    assert torch_private.size_number(env.create_unbacked_symint()) is None
    assert len(env.guards) == before


def test_guards_are_where_we_put_them() -> None:
    """``ep.module()`` enforces the list that we set, and the constructor made another one of the fake values."""
    ep = torch.export.export(
        torch.nn.ReLU(), (torch.ones(4, 2),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)
    )
    assert torch_private.guards_of(ep) == []
    torch_private.set_guards(ep, ["L['input'].size()[0] % 2 == 0"])
    assert ep.module()(torch.ones(6, 2)).shape == (6, 2)
    with pytest.raises(AssertionError, match="Guard failed"):
        ep.module()(torch.ones(5, 2))


def test_graph_modules_can_be_subclassed_as_ours_is() -> None:
    """What LoweredModule relies on in GraphModule."""
    source = inspect.getsource(torch.fx.GraphModule)
    for name in (
        "_graph",
        "_tracer_cls",
        "_tracer_extras",
        "_replace_hooks",
        "_create_node_hooks",
        "_erase_node_hooks",
        "_recompile_submodules",
    ):
        assert name in source, name
    assert torch_private.PyTreeCodeGen is not None
    assert set(torch_private.PyTreeInfo._fields) == {"orig_args", "in_spec", "out_spec"}


def test_a_module_begins_as_its_attributes_alone() -> None:
    """``Module.__init__`` gives every module the same: flags, and empty containers that are its own."""
    kind, module = torch.nn.Module, torch.nn.Module().__dict__
    made, again = (
        torch_private.blank_module(kind).__dict__,
        torch_private.blank_module(kind).__dict__,
    )
    assert list(torch_private.blank_module(kind, purefx_place=1).__dict__) == [
        *module,
        "purefx_place",
    ]
    assert made == module and list(made) == list(module)
    for name, value in made.items():
        assert type(value) is type(module[name]), name
        assert isinstance(value, bool | int | str | None) or (
            not value and value is not again[name]
        ), name


def test_an_overload_calls_its_entry_and_does_nothing_else() -> None:
    """So what stands in generated code for an overload may be that entry; modes of functions are told of the overload."""
    overload: Any = torch.ops.aten.add.Tensor
    lines = [
        line.strip()
        for line in inspect.getsource(type(overload).__call__).splitlines()
        if line.strip()
    ]
    assert lines[-1] == "return self._op(*args, **kwargs)"
    # Since torch 2.14, the default override of a tensor class calls the kernel of a custom operator; it never calls lowered code.
    shortcut = [
        "if (",
        "self._pyobj_dispatcher is not None",
        "and torch._C._peek_should_skip_torch_function()",
        "):",
    ]
    assert lines[1:-1] in ([], [*shortcut, "return self._cpp_dispatch_handle(*args, **kwargs)"])
    assert torch_private.entry_of(overload) is overload._op
    assert torch_private.entry_of(torch.add) is torch.add
    seen: list[Any] = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, function: Any, _: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    x = torch.ones(1)
    with Mode():
        torch_private.entry_of(overload)(x, x)
    assert seen == [overload]


def test_dynamo_runs_what_is_marked() -> None:
    """Our mark is the one of the public function, which imports dynamo."""

    def done() -> None:
        """Do nothing."""

    public = {
        name
        for name in vars(torch.compiler.assume_constant_result(done))
        if name.startswith("_dynamo")
    }
    assert public <= set(vars(torch_private.run_while_tracing(lambda: None)))
    assert public


@torch.library.custom_op("purefx_upstream::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    """Has no fake kernel."""
    return x.clone()


def test_refusals_are_told_from_mistakes() -> None:
    """What fake values cannot tell raises other errors than what is wrong."""
    mode = torch_private.FakeTensorMode(shape_env=torch_private.new_shape_env())
    with mode:
        x = torch.ones(3)
        size = x.nonzero().shape[0]
        tries: list[Any] = [
            lambda: torch.ops.purefx_upstream.no_fake.default(x),
            lambda: bool(size > 1),
            lambda: x.item() if bool(x.sum() > 3) else None,
            lambda: x @ torch.ones(4),
        ]
        told: list[bool] = []
        for attempt in tries:
            with pytest.raises(Exception) as caught:  # noqa: PT011  which one it is is what is asked
                attempt()
            told.append(torch_private.is_refusal(caught.value))
    assert told == [True, True, True, False]


def test_modes_can_be_kept_from_what_operators_gave_before() -> None:
    """``lift`` returns its operand; the second time, torch's cache gives a tensor of its own."""
    mode, lift = torch_private.FakeTensorMode(), torch.ops.aten.lift.default
    with torch_private.without_cache(mode), mode:
        assert mode.cache_enabled is False
        for _ in range(3):
            x = torch.ones(2, 5)
            assert torch_private.storage_key(lift(x)) == torch_private.storage_key(x)
    assert mode.cache_enabled is True


def test_what_torch_registers_late_is_known() -> None:
    """Whoever reads a file that names such an operator finds it, though nothing was traced yet."""
    code = """
import torch
def registered():
    return {(schema.name, schema.overload_name) for schema in torch._C._jit_get_all_schemas()}, set(torch._ops._higher_order_ops)
operators, higher = registered()
from purefx.ir.operators import registered as found
from purefx.ir.torch_private import LATE_HIGHER_ORDER, LATE_NAMESPACES, resolve_operator
import sys
assert resolve_operator("aten", "no_such_thing", "default") is None and "torch._dynamo" not in sys.modules
assert found("streams.fork.default") is not None and "torch._dynamo" in sys.modules
more, more_higher = registered()
assert {name.partition("::")[0] for name, _ in more - operators} <= LATE_NAMESPACES.keys(), more - operators
assert more_higher - higher <= LATE_HIGHER_ORDER
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_value_of_a_closed_level_of_vmap_is_seen_as_one_example() -> None:
    """Exporters keep such values; no operator takes them."""

    class Mapped(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(torch.sin)(x)

    ep = torch.export.export(Mapped(), (torch.ones(2, 3),))
    (kept,) = [
        node.meta["val"] for node in ep.graph.nodes if node.target is torch.ops.aten.sin.default
    ]
    (x,) = [node.meta["val"] for node in ep.graph.nodes if node.op == "placeholder"]
    with x.fake_mode:
        found = torch_private.per_example(kept)
        assert (type(found).__name__, found.shape, found.dtype) == (
            "FakeTensor",
            (3,),
            torch.float32,
        )
        assert torch_private.per_example(found) is found


def test_functions_of_the_users_and_of_torch_are_distinguished() -> None:
    """The classes whose backward runs are found; those by which torch differentiates operators are not among them."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return gradients[0] * 2

    x = torch.ones(3, requires_grad=True)
    own = "test_functions_of_the_users_and_of_torch_are_distinguished.<locals>.Double"
    assert torch_private.own_functions([Double.apply(x).sin()]) == [own]
    assert (
        torch_private.own_functions(
            [torch.cond(torch.tensor(True), torch.sin, torch.cos, (x,)).sin()]
        )
        == []
    )
    checkpointed = checkpoint(torch.sin, x, use_reentrant=True)
    assert torch_private.own_functions([checkpointed]) == ["CheckpointFunction"]


def test_what_autograd_knows() -> None:
    """A view has a base, what is detached has none; what a node has saved can be freed while it runs, unless it is retained."""
    x = torch.ones(3)
    assert torch_private.base_of(x.view(1, 3)) is x
    assert torch_private.base_of(x.view(1, 3).detach()) is None
    left: list[bool] = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x * 3)
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            (saved,) = (weakref.ref(one) for one in ctx.saved_tensors)
            ctx.maybe_clear_saved_tensors()
            left.append(saved() is not None)
            return gradients[0] * 2

    y = Double.apply(x.requires_grad_())
    torch.autograd.backward(y, x, retain_graph=True)
    torch.autograd.backward(y, x)
    assert left[1:] == [False]
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.backward(y, x)


def test_modes_are_read_and_put_back() -> None:
    """Each mode that nodes of a graph switch is seen, and put back; an object through which a mode is left is known."""
    before = torch_private.current_modes()
    private: Any = torch._C
    entered = torch.amp.autocast_mode._enter_autocast("cpu", torch.bfloat16, True, None)  # type: ignore[attr-defined]
    torch._C._set_grad_enabled(False)
    private._set_fwd_grad_enabled(False)
    private._functorch._vmap_increment_nesting(2, "error")
    private._functorch.set_inplace_requires_grad_allowed(True)
    private._autograd._saved_tensors_hooks_disable("no")
    torch.nn.attention._sdpa_kernel([torch.nn.attention.SDPBackend.MATH], set_priority=True)  # type: ignore[attr-defined]
    inference = torch.autograd.grad_mode._enter_inference_mode(True)  # type: ignore[attr-defined]
    private._enter_dual_level()
    assert all(old != new for old, new in zip(before, torch_private.current_modes(), strict=True))
    opened = torch_private.mode_objects([inference, 1, entered, inference])
    assert opened == [inference, entered]
    torch_private.restore_modes(before, opened)
    assert torch_private.current_modes() == before
    assert not torch.is_inference_mode_enabled()
    assert not torch.is_autocast_enabled("cpu")
    assert torch_private.is_undisturbed()
    assert private._exit_dual_level(level=private._enter_dual_level()) is None
    assert torch_private.mode_stacks() == ([], [])


def test_functions_that_set_random_state_ask_first() -> None:
    """torch looks up the default generator where we replace it, and a generator keeps its C++ object."""
    asked: list[str] = []
    before = torch.get_rng_state()
    with torch_private.random_state_kept(lambda name: not asked.append(name)):
        assert torch.manual_seed(3) is torch.default_generator
        with torch.random.fork_rng():
            torch.set_rng_state(before)
        torch.seed()
        torch.cuda.manual_seed(3)
    assert {"manual_seed", "set_state", "seed", "torch.cuda", "torch.xpu"} <= set(asked)
    assert torch.equal(torch.get_rng_state(), before)
    random: Any = torch.random
    assert random.default_generator is torch.default_generator
    generator = torch.Generator()
    key = torch_private.generator_key
    assert key(generator) == key(generator) != key(torch.Generator())
