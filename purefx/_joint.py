"""``capture_joint``: trace a module and its backward into one program, with the hierarchy of the module for both.

The module runs once under AOTAutograd, on fake tensors; wrapped calls record the modules around each operator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
import torch.fx
from torch.overrides import TorchFunctionMode

from purefx.ir.analysis.history import tracked
from purefx.ir.effects.declared import Effects
from purefx.ir.errors import CaptureError, UnsupportedProgram
from purefx.ir.forks import collector_paused
from purefx.ir.importing.fx import TENSOR, Convention, described, kind, read_joint
from purefx.ir.importing.stacks import noted_calls
from purefx.ir.importing.traced import Attributes
from purefx.ir.names import parent_of
from purefx.ir.operators import checked_declarations
from purefx.ir.program import Program
from purefx.ir.state import SlotKind
from purefx.ir.tensors import tensors_among
from purefx.ir.torch_private import FakeTensorMode, new_shape_env, pytree, traced_joint, uncompiled
from purefx.ir.validation import MODULE, call_arguments
from purefx.ir.verify import check
from purefx.ir.verify.findings import PLAIN, short
from purefx.transforms import lift_state, name_inputs, restore_names

from ._doors import LOCK, capture_message


def capture_joint(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    effects: Mapping[Callable[..., Any], Effects] | None = None,
    provenance: bool = True,
) -> Program:
    """Trace a module together with its backward, and import both as one program.

    Args:
        module: the module to trace, in its current mode; it is not changed, and its tensors are shared, not copied. Parameters
            that require gradients get them.
        args: positional arguments of an example call. Tensors that require gradients get them; other objects are literals.
        kwargs: keyword arguments of the call.
        effects: the effects of operators of other libraries, as in ``import_ep``.
        provenance: whether every node records its origin, for ``history`` and ``became``.

    Returns:
        A flat joint program. Call it like the module, with ``tangents=``, a tuple of the gradients of the results that need
        them. It returns a pair: the result of the module, and a tuple of the gradients in the order of
        ``program.signature.outputs``: to parameters, then to arguments, None if the result does not depend on them. The
        gradient of a module call is a further call of that module.

    Raises:
        CaptureError: the module cannot be traced; the message names the line.
        UnsupportedProgram: it cannot be represented faithfully, or no result needs a gradient; the message names the cause.
        ArgumentError: ``module`` is not a module, or ``args`` is not a tuple.

    >>> import torch, purefx as px
    >>> model, x = torch.nn.Linear(3, 1), torch.ones(2, 3)
    >>> joint = px.lower(px.training.capture_joint(model, (x,)))
    >>> result, (weight, bias) = joint(x, tangents=(torch.ones(2, 1),))
    >>> weight, bias
    (tensor([[2., 2., 2.]]), tensor([2.]))
    """
    MODULE.check(module, "capture_joint")
    call_arguments(args, kwargs, "capture_joint")
    if "tangents" in (*(kwargs or {}), *_names(module, len(args))):
        raise UnsupportedProgram(
            "a joint program takes the gradients of its results as 'tangents', but the module has an argument of that name; "
            "wrap it in a module that renames the argument"
        )
    module = uncompiled(module)
    lazy = next(
        (name for name, value in module.named_parameters() if torch.nn.parameter.is_lazy(value)),
        None,
    )
    if lazy is not None:
        raise UnsupportedProgram(
            f"the parameter {lazy!r} is lazy: the first call of the module makes it; call the module once"
        )
    call = _Flat(module, *pytree.tree_flatten((args, dict(kwargs or {}))))
    with LOCK:
        traced = call.traced()
    found = described(traced.graph)
    if found is None or not found.is_joint:
        raise UnsupportedProgram(
            f"no result of {type(module).__qualname__} needs a gradient: no parameter or argument that it depends on requires "
            "one (module.requires_grad_(), x.requires_grad_()), or it detaches its results"
        )
    declared = checked_declarations(effects)
    with collector_paused():
        program = read_joint(traced, found, module, call.convention(), declared, named=call.named)
        program = tracked(program) if provenance else program
        if (
            "state as inputs" not in program.facts
        ):  # it reads tensors that are neither parameters nor buffers
            program = lift_state(restore_names(program, module))
        return check(name_inputs(program))


class _Flat(torch.nn.Module):
    """Calls a module with tensors alone and returns a tuple of tensors; it keeps the rest of the call.

    It holds each tensor of the module once, so that a tensor with several names gets one gradient.  It returns clones, so that
    a result that is a view of another one, or of an argument, has a separate gradient.
    """

    def __init__(self, module: torch.nn.Module, leaves: list[Any], in_spec: Any) -> None:
        super().__init__()
        for leaf in leaves:
            _check_literal(leaf, "an argument")
        self.called = (_Called(module),)  # in a tuple, so that torch does not register it
        self.leaves = leaves
        self.in_spec = in_spec
        self.out_spec: Any = None
        self.results: tuple[Any, ...] = ()
        numbers: dict[int, int] = {}
        self.names: list[str] = []
        self.places: dict[str, int] = {}
        """The number of the tensor at each name; a module with several paths is listed once."""
        owners = {path for path, _ in module.named_modules()}
        for name, slot in Attributes(module).state().pairs:
            if slot.cell not in numbers:
                register = (
                    self.register_parameter
                    if slot.kind is SlotKind.PARAMETER
                    else self.register_buffer
                )
                register(f"t{len(numbers)}", slot.value)
                numbers[slot.cell] = len(numbers)
                self.names.append(name)
            if parent_of(name) in owners:
                self.places[f"module.{name}"] = numbers[slot.cell]

    @property
    def module(self) -> torch.nn.Module:
        """The called module."""
        return self.called[0].module

    def named(self, name: str) -> str:
        """Return the name of a tensor in the module."""
        return self.names[int(name[1:])]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the module with tensors in place of those of the example."""
        rest = iter(tensors)
        leaves = [next(rest) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.in_spec)
        state = {name: getattr(self, f"t{number}") for number, name in enumerate(self.names)}
        # With tie_weights=True, torch does not restore the tensors of a module that has two paths.
        placed = {name: getattr(self, f"t{number}") for name, number in self.places.items()}
        result = torch.func.functional_call(
            self.called[0], placed, (state, *args), kwargs, tie_weights=False
        )
        results, self.out_spec = pytree.tree_flatten(result)
        for leaf in results:
            _check_literal(leaf, "a result")
        self.results = tuple(
            [TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in results]
        )
        return tuple([leaf.clone() for leaf in tensors_among(results)])

    def traced(self) -> torch.fx.GraphModule:
        """Return the joint graph."""
        mode = FakeTensorMode(allow_non_fake_inputs=True, shape_env=new_shape_env())
        try:
            with (
                torch.inference_mode(mode=False),
                torch.enable_grad(),
                noted_calls(self.module),
                LayerByLayer(),
            ):
                fakes = [_fake(leaf, mode) for leaf in tensors_among(self.leaves)]
                traced = traced_joint(self, tuple(fakes))
        except UnsupportedProgram:
            raise
        except Exception as error:
            raise CaptureError(
                capture_message(self.module, error, "AOTAutograd cannot trace")
            ) from error
        _drop_clones(traced)
        return traced

    def convention(self) -> Convention:
        """Return the calling convention of the module."""
        leaves = tuple([TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves])
        positional, named = self.in_spec.children()
        names = _names(self.module, positional.num_children)
        if len(names) == positional.num_children:  # names match arguments by position
            names = (*names, *named.context, "tangents")
        return Convention(self.in_spec, names, leaves, self.out_spec, self.results)


class _Called(torch.nn.Module):
    """Calls a module, and writes into buffers that the module replaces."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, state: Mapping[str, torch.Tensor], *args: Any, **kwargs: Any) -> Any:
        """Call the module, whose state has these names."""
        result = self.module(*args, **kwargs)
        for name, buffer in self.module.named_buffers():
            if name in state and buffer is not state[name]:
                state[name].copy_(buffer)
        return result


def _check_literal(leaf: Any, what: str) -> None:
    if not isinstance(leaf, torch.Tensor) and type(leaf) not in PLAIN:
        raise UnsupportedProgram(
            f"{what} of the module is {short(leaf)}, neither a tensor nor a literal; wrap the module in one that takes and "
            "returns tensors, or register the class with torch.utils._pytree"
        )


def _fake(tensor: torch.Tensor, mode: Any) -> torch.Tensor:
    if tensor.layout is not torch.strided:
        raise UnsupportedProgram(
            f"an argument of the module is a tensor of layout {tensor.layout}; pass a dense one"
        )
    return mode.from_tensor(tensor.detach(), static_shapes=True).requires_grad_(
        tensor.requires_grad
    )


def _drop_clones(traced: torch.fx.GraphModule) -> None:
    # ``_Flat`` clones its results at the end of the forward.
    found = described(traced.graph)
    output = next(iter(reversed(traced.graph.nodes)))
    if found is None:
        return
    results = list(output.args[0])
    for number, (value, desc) in enumerate(found.outputs):
        is_result = kind(desc) == "PlainAOTOutput" and isinstance(value, torch.fx.Node)
        if is_result and value.target is torch.ops.aten.clone.default and len(value.users) == 1:
            results[number] = value.args[0]
    output.args = (type(output.args[0])(results),)
    for value, _ in found.outputs:
        if isinstance(value, torch.fx.Node) and value.op == "call_function" and not value.users:
            traced.graph.erase_node(value)


def _names(module: torch.nn.Module, count: int) -> tuple[str, ...]:
    # The names of the positional arguments, as far as the signature of ``forward`` has them.
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return ()
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple([parameter.name for parameter in parameters if parameter.kind in plain][:count])


KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")

REST = ("has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first")


class LayerByLayer(TorchFunctionMode):
    """Runs recurrent operators with dropout layer by layer, as in eager mode: torch's decomposition (2.13) omits the dropout.

    >>> layer, x = torch.nn.GRU(2, 2, num_layers=2, dropout=0.5), torch.ones(3, 1, 2)
    >>> seeds = [torch.manual_seed(0)]
    >>> eager = layer(x)[0]
    >>> seeds += [torch.manual_seed(0)]
    >>> with LayerByLayer():
    ...     torch.allclose(layer(x)[0], eager)
    True
    """

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Any = (),
        kwargs: Mapping[str, Any] | None = MappingProxyType({}),
    ) -> Any:
        """Call the function, or its layers."""
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in KINDS and func in _operators(name):
            packed = len(args) > 3 and isinstance(args[3], list | tuple)
            names = (*(("data", "batch_sizes") if packed else ("input",)), "hx", "params", *REST)
            values = {**dict(zip(names, args, strict=False)), **(kwargs or {})}
            if values["train"] and values["dropout"] and values["num_layers"] > 1:
                return _layers(
                    func, [values[name] for name in names if name in values], hx=names.index("hx")
                )
        return func(*args, **(kwargs or {}))


def _operators(name: str) -> tuple[Any, ...]:
    packet = getattr(torch.ops.aten, name)
    return getattr(torch, name), packet, packet.input, packet.data


def _layers(func: Any, arguments: Sequence[Any], hx: int) -> tuple[torch.Tensor, ...]:
    """Run a recurrent operator layer by layer and return its results.

    Args:
        func: the operator.
        arguments: in order.
        hx: the position of the hidden state; parameters, biases, layers, dropout and so on follow it.
    """
    x, *sizes = arguments[:hx]
    state, params, biases, layers, dropout, train, both, *rest = arguments[hx:]
    states = state if isinstance(state, list | tuple) else [state]
    ways, each = 2 if both else 1, len(params) // layers
    found: list[tuple[torch.Tensor, ...]] = []
    for layer in range(layers):
        own = [part[layer * ways : (layer + 1) * ways] for part in states]
        weights = params[layer * each : (layer + 1) * each]
        x, *ends = func(
            x,
            *sizes,
            own if states is state else own[0],
            weights,
            biases,
            1,
            0.0,
            train,
            both,
            *rest,
        )
        found.append(tuple(ends))
        if layer < layers - 1:
            x = torch.dropout(x, dropout, train)
    return (x, *[torch.cat(ends) for ends in zip(*found, strict=True)])
