"""``quicken``: what torch does anew for each of ten thousand small programs, and could have done once.

Tests export and trace programs of a few nodes, so what torch does around each takes longer than the programs.  None of this
changes what torch gives; where another version of torch has it elsewhere, it is left as it is.
"""

from __future__ import annotations

import ctypes
import gc
import inspect
import textwrap
import traceback
from collections.abc import Callable, Mapping
from functools import cache
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
import torch._dynamo.config
import torch._export.utils as export_utils
import torch._ops as operators
import torch._subclasses.fake_tensor as fake_tensors
import torch.cuda.random
import torch.export.decomp_utils as decompositions
import torch.export.exported_program as exported_programs
import torch.fx._symbolic_trace as tracing
import torch.utils._traceback as tracebacks
from torch._ops import OperatorBase
from torch.fx.graph import CodeGen


def quicken() -> None:
    """Do all of it in this process."""
    seed_what_is_there()
    keep_no_stacks_of_modes()
    read_lines_when_asked()
    ask_signatures_once()
    look_up_operators_once()
    evaluate_no_annotations()
    patch_modules_alone()
    torch._dynamo.config.run_gc_after_compile = (
        False  # the collector comes when there is something to collect
    )


def replace(owner: Any, name: str, new: Any) -> None:
    """Put something in the place of what a module or class of torch has, if it has that."""
    if name in vars(owner):
        setattr(owner, name, new)


def seed_what_is_there() -> None:
    """Keep no seed for a GPU that torch was built without.

    It is kept with the stack as text, which is read from the sources: a millisecond for each test.
    """
    if not torch.backends.cuda.is_built():
        replace(torch.cuda.random, "_lazy_call", lambda call, **options: None)


def keep_no_stacks_of_modes() -> None:
    """Do not read from the sources where each fake mode is made, which only the message about two modes in one call says."""
    replace(
        fake_tensors,
        "traceback",
        SimpleNamespace(**{**vars(traceback), "extract_stack": traceback.StackSummary}),
    )


def read_lines_when_asked() -> None:
    """Read the lines of a stack when somebody asks for them: of those below each node, nearly all are left out."""

    def summary(symbolized: list[dict[str, Any]], skip: int) -> traceback.StackSummary:
        frames = (
            traceback.FrameSummary(at["filename"], at["line"], at["name"], lookup_line=False)
            for at in symbolized[skip:]
        )
        return traceback.StackSummary(reversed([*frames]))

    replace(tracebacks, "_extract_symbolized_tb", summary)


def ask_signatures_once() -> None:
    """Ask once what a method that makes the code of graphs takes, and not for each node."""

    @cache
    def taken(function: Any) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(function).parameters

    def call(_: CodeGen, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        names = taken(getattr(method, "__func__", method))
        return method(*args, **{name: value for name, value in options.items() if name in names})

    replace(CodeGen, "_call_method_with_signature_check", call)


def look_up_operators_once() -> None:
    """Look up every operator of C++ that could be decomposed if there are others than before.

    Torch does so for each of fifty namespaces with each program that it decomposes: half of the time that small ones take.
    """
    look_up: Any = getattr(export_utils, "_materialize_cpp_cia_ops", None)
    collect: Any = getattr(export_utils, "_collect_all_valid_cia_ops", None)
    looked_up, known = list[list[str]](), list[None]()

    def look_up_others() -> None:
        names = (
            []
            if known
            else torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd")
        )
        if look_up is not None and not known and looked_up != [names]:
            look_up()
            looked_up[:] = [names]

    def collect_in_one() -> Any:
        look_up_others()
        known.append(None)  # while it goes over the namespaces nothing is registered
        try:
            return collect()
        finally:
            known.pop()

    replace(export_utils, "_materialize_cpp_cia_ops", look_up_others)
    for place in (export_utils, exported_programs, decompositions):
        replace(place, "_collect_all_valid_cia_ops", collect_in_one)


def evaluate_no_annotations() -> None:
    """Compile the method that gives an operator an implementation so that its annotations are text.

    Those of a function inside of it are made anew at each call, of which a decomposition makes two thousand.
    """
    source = textwrap.dedent(inspect.getsource(OperatorBase.py_impl))
    found: dict[str, Any] = {}
    exec(
        compile(source, operators.__file__, "exec", flags=annotations.compiler_flag),
        vars(operators),
        found,
    )
    replace(OperatorBase, "py_impl", found["py_impl"])


def patch_modules_alone() -> None:
    """Let a tracer put its own ``__call__`` and ``__getattr__`` into ``torch.nn.Module`` without a walk over all subclasses.

    Each trace does so and takes it back.  Where a class gets a method with such a name, Python goes through its subclasses, of
    which the tests have a thousand, to find the slots that change; none does where one function follows another.
    """
    held, modified = gc.get_referents(vars(torch.nn.Module))[0], ctypes.pythonapi.PyType_Modified
    modified.argtypes, modified.restype = [ctypes.py_object], None

    def put(into: Any, name: str, new: Any) -> None:
        if (
            into is torch.nn.Module
            and isinstance(held.get(name), FunctionType)
            and isinstance(new, FunctionType)
        ):
            held[name] = new
            modified(into)
        else:
            setattr(into, name, new)

    patched = tracing._PatchedFnSetAttr
    replace(patched, "patch", lambda self: put(self.frame_dict, self.fn_name, self.new_fn))
    replace(patched, "revert", lambda self: put(self.frame_dict, self.fn_name, self.orig_fn))
