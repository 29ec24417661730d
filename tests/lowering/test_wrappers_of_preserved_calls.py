"""A wrapper around a module with a preserved signature works, or a ``CallError`` says why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import purefx as px

X = torch.ones(1, 2)


class Masked(nn.Module):
    """A module that uses a value of its caller."""

    mask: torch.Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.mask = nn.Linear(2, 2), None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lin(x) if self.mask is None else self.lin(x) * self.mask


class Model(nn.Module):
    """Two calls of one module, with a value that they use beside the argument or without."""

    def __init__(self, *, is_masked: bool) -> None:
        super().__init__()
        self.child, self.is_masked = Masked(), is_masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.child.mask = x.sin() if self.is_masked else None
        result = self.child(self.child(x))
        self.child.mask = None
        return result


class Plain(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Keywords(Plain):
    def forward(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        return self.inner(*args, **kwargs)


class Forwarding(Plain):
    """A wrapper that has all attributes of the module in it."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)


class ForwardingKeywords(Forwarding, Keywords):
    """The same, and all keywords."""


WRAPPERS = [Plain, Keywords, Forwarding, ForwardingKeywords]


@pytest.mark.parametrize("to", ["graph_module", "interpreter"])
@pytest.mark.parametrize("is_masked", [True, False], ids=["masked", "closed"])
@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda wrapper: wrapper.__name__)
def test_a_wrapper_works_or_is_refused(wrapper: Any, is_masked: bool, to: Any) -> None:
    model = Model(is_masked=is_masked)
    ep = torch.export.export(model, (X,), preserve_module_call_signature=("child",), strict=False)
    lowered: Any = px.lower(px.transform(px.import_ep(ep)), to=to)
    lowered.child = wrapper(lowered.child)
    if is_masked and wrapper is not ForwardingKeywords:
        with pytest.raises(px.errors.CallError, match=r"must pass \*\*kwargs on, and its attr"):
            lowered(X)
        return
    for _ in range(2):
        assert torch.equal(lowered(X), model(X))
