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
import weakref
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FrameType, FunctionType, SimpleNamespace
from typing import Any

import torch
import torch._dynamo.config
import torch._export.utils as export_utils
import torch._ops as operators
import torch._subclasses.fake_tensor as fake_tensors
import torch.cuda.random
import torch.export._trace as tracing_exports
import torch.export.decomp_utils as decompositions
import torch.export.exported_program as exported_programs
import torch.fx._symbolic_trace as tracing
import torch.fx.proxy as proxies
import torch.utils._traceback as tracebacks
from torch._ops import OperatorBase
from torch.fx.graph import CodeGen
from torch.fx.graph_module import GraphModule


def quicken() -> None:
    """Do all of it in this process."""
    seed_what_is_there()
    keep_no_stacks_of_modes()
    read_lines_when_asked()
    describe_frames_once()
    compile_graphs_at_the_end()
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


def describe_frames_once() -> None:
    """Describe each place of a stack once: tracers write down all frames below each node, nearly always the same ones."""
    known: dict[tuple[int, int], tuple[CodeType, traceback.FrameSummary]] = {}

    def described(frame: FrameType) -> traceback.FrameSummary:
        code, key = frame.f_code, (id(frame.f_code), frame.f_lasti)
        if key not in known:
            summary = traceback.FrameSummary(
                code.co_filename, frame.f_lineno, code.co_name, lookup_line=False
            )
            known[key] = code, summary  # the code is kept: another one could get its id
        return known[key][1]

    def extract() -> SimpleNamespace:
        if len(known) > 20_000:
            known.clear()
        frame, frames = inspect.currentframe(), list[traceback.FrameSummary]()
        while frame is not None and (frame := frame.f_back) is not None:
            frames.append(described(frame))
        return SimpleNamespace(summary=lambda: traceback.StackSummary(reversed(frames)))

    replace(proxies, "CapturedTraceback", SimpleNamespace(extract=extract))


def compile_graphs_at_the_end() -> None:
    """Compile the graphs of an export when it has ended, or something looks at their code.

    The exporter compiles a graph after each of ten passes, which takes an eighth of the time, and runs none of them.
    """
    compiled: Any = GraphModule.recompile
    exports = list[None]()

    class Later:
        """The method ``forward`` until somebody asks for it."""

        def __init__(self, module: GraphModule) -> None:
            self.module = weakref.ref(module)

        def __get__(self, module: GraphModule | None, kind: type[GraphModule]) -> Any:
            compiled(module or self.module())
            return getattr(module or kind, "forward")  # noqa: B009  another one by now

    def is_later(module: torch.nn.Module) -> bool:
        return isinstance(vars(type(module)).get("forward"), Later)

    def recompile(module: Any) -> Any:
        if not exports:
            return compiled(module)
        codegen = module._graph._codegen
        if hasattr(codegen, "pytree_info"):
            module._in_spec = codegen.pytree_info.in_spec
            module._out_spec = codegen.pytree_info.out_spec
        type(module).forward = Later(module)
        return None

    def code(module: Any) -> str:
        if is_later(module):
            compiled(module)
        return module._code

    def export(*args: Any, **options: Any) -> Any:
        exports.append(None)
        try:
            ep = export_for_training(*args, **options)
        finally:
            exports.pop()
        for module in filter(is_later, ep.graph_module.modules()):
            compiled(module)
        return ep

    ours: tuple[Any, ...] = (export, recompile, code, Later.__get__)
    for function in ours:
        # An error of the exporter is told with the innermost line outside of torch, which is none of these.
        function.__code__ = function.__code__.replace(co_filename=tracing_exports.__file__)
    export_for_training: Any = getattr(tracing_exports, "_export_for_training", None)
    if export_for_training is not None and isinstance(vars(GraphModule).get("code"), property):
        replace(tracing_exports, "_export_for_training", export)
        replace(GraphModule, "recompile", recompile)
        replace(GraphModule, "code", property(code))


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
