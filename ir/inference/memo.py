"""``Memo``: what operators return on fake tensors of fixed sizes, worked out once for operands that are described alike.

A model repeats its layers, and what an operator returns in one of them it returns in all, also in the next program that a
rewrite makes of it.  A memo belongs to a fake mode, which all programs of one export have in common, and goes with it.  What it
gives is a tensor of its own each time, as if the operator had run, so nothing shares memory that would not do so otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary, ref

import torch

from ..graph import Node, Op
from ..torch_private import FakeTensor, OpOverload, fake_of, has_fixed_sizes, storage_key, without_overrides

UNASKED: Any = object()
"""Stands for what the memo does not know."""

NAMESPACES = frozenset({"aten", "prims"})
"""Whose operators are functions of what describes their operands; a library may decide by anything else."""

BY_CONTENTS = frozenset({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output, torch.Tag.inplace_view})
"""Tags of operators that return what depends on more, or change what they take."""

LITERALS = frozenset(
    {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)  # fmt: skip

Described = tuple[Any, ...]

LARGEST = 20_000
"""Answers that a memo keeps at most: a search over sizes asks any number of questions."""

PLAIN_FACTS = 5
"""How many of the facts of a tensor a new one is made by: its kind, dtype, shape, strides and device."""

NOTHING_ELSE = (0, False, False, False)
"""The other facts of a tensor that those describe."""


class Memo:
    """What operators returned so far, by what describes their operands.

    Args:
        mode: the fake mode of the values.

    >>> from purefx.ir.inference import fresh_mode, running
    >>> from purefx.ir.operators import op_of
    >>> node, mode = Node("y", op_of(torch.ops.aten.neg.default)), fresh_mode()
    >>> memo = Memo(mode)
    >>> with running(mode):
    ...     x, y = torch.ones(2), torch.zeros(2)
    ...     memo.keep(memo.question(node, [x], {}), -x, [x])
    >>> memo.answer(memo.question(node, [y], {}))
    FakeTensor(..., size=(2,))
    """

    def __init__(self, mode: Any) -> None:
        self._mode = ref(mode)  # the mode's memo does not keep it
        self._answers: dict[Hashable, Described] = {}
        self._apt: dict[int, tuple[Any, bool]] = {}

    @property
    def mode(self) -> Any:
        """The fake mode of the values."""
        return self._mode()

    def question(self, node: Node, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Hashable | None:
        """Return what is asked of an operator; None if what it returns may depend on more than descriptions.

        Args:
            node: calls the operator.
            args: fake values and literals.
            kwargs: the same by name.
        """
        do = node.do
        if type(do) is not Op or do.effects.acts or do.effects.aliases:
            return None
        target: Any = do.target
        apt = self._apt.get(id(target))
        if apt is None:
            apt = self._apt[id(target)] = target, _is_apt(target)  # held, so that nothing else has its id
        if not apt[1]:
            return None
        # What a factory or a promotion gives depends on these as well.
        given: list[Any] = [id(target), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
        for part in (*args, *kwargs, *kwargs.values()):
            described = self.described(part)
            if described is None:
                return None
            given.append(described)
        return tuple(given)

    def answer(self, question: Hashable | None, free: list[Any] | None = None) -> Any:
        """Return what an operator returns, if it was asked before; ``UNASKED`` otherwise.

        Args:
            question: what is asked.
            free: values that nothing has any more; one of them is taken out and given back where it is described just so.
        """
        known = None if question is None else self._answers.get(question)
        return UNASKED if known is None else self.made(known, [] if free is None else free)

    def made(self, known: Described, free: list[Any], described: Callable[[Any], Hashable | None] | None = None) -> Any:
        """Return a value of which facts are known.

        Args:
            known: what ``facts`` gave of one that is alike.
            free: values that nothing has any more; one of them is taken out and given back where it is described just so.
            described: describes them, for who knows some already.
        """
        wanted, describe = (*known, *NOTHING_ELSE), described or self.described
        for number, value in enumerate(free):
            if describe(value) == wanted:
                return free.pop(number)
        kind, *parts = known
        if kind is FakeTensor:
            return fake_of(self.mode, *parts)
        return kind([fake_of(self.mode, *part[1:]) for part in parts])

    def keep(self, question: Hashable | None, value: Any, args: Sequence[Any]) -> None:
        """Keep what an operator returned.

        Args:
            question: what was asked.
            value: what it returned.
            args: its operands; what shares memory with them, or within the value, is not kept.
        """
        if question is None:
            return
        facts = self.facts(value)
        if facts is None:
            return
        parts = _tensors([value])
        own = {storage_key(tensor) for tensor in parts}
        if len(own) == len(parts) and own.isdisjoint(map(storage_key, _tensors(args))):
            if len(self._answers) >= LARGEST:
                self._answers.clear()
            self._answers[question] = facts

    def facts(self, value: Any) -> Described | None:
        """Return what a new value like this one is made by; None where that is not all that describes it."""
        several = type(value) is tuple or type(value) is list
        parts: list[Any] = list(value) if several else [value]
        described = [self.described(part) if type(part) is FakeTensor else None for part in parts]
        plain = [facts[:PLAIN_FACTS] for facts in described if facts is not None and facts[PLAIN_FACTS:] == NOTHING_ELSE]
        if len(plain) < len(parts):
            return None
        return (type(value), *plain) if several else plain[0]

    def described(self, value: Any) -> Described | None:
        """Return what describes a value: tensors of which it says the same are alike; None where that would not be all."""
        kind = type(value)
        if kind is FakeTensor:
            if value.fake_mode is not self._mode() or value.constant is not None or not has_fixed_sizes(value):
                return None
            with without_overrides():
                if value.layout is not torch.strided:
                    return None
                return (
                    kind, value.dtype, value.shape, value.stride(), value.fake_device,
                    value.storage_offset(), value.requires_grad, value.is_conj(), value.is_neg(),
                )  # fmt: skip
        if kind in LITERALS:
            return kind, value
        if kind is not list and kind is not tuple:
            return None
        parts = [self.described(part) for part in value]
        return None if None in parts else (kind, *parts)


_MEMOS: WeakKeyDictionary[Any, Memo] = WeakKeyDictionary()


def memo_of(mode: Any) -> Memo:
    """Return the memo of a fake mode.

    >>> from purefx.ir.inference import fresh_mode
    >>> mode = fresh_mode()
    >>> memo_of(mode) is memo_of(mode), memo_of(mode).mode is mode
    (True, True)
    """
    found = _MEMOS.get(mode)
    return _MEMOS.setdefault(mode, Memo(mode)) if found is None else found


def _is_apt(target: Any) -> bool:
    return isinstance(target, OpOverload) and target.namespace in NAMESPACES and BY_CONTENTS.isdisjoint(target.tags)


def _tensors(args: Sequence[Any]) -> list[Any]:
    parts = [part for arg in args for part in (arg if isinstance(arg, list | tuple) else (arg,))]
    return [part for part in parts if isinstance(part, torch.Tensor)]
