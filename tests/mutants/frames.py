"""What looks at frames and sources, as it is in the copy: mutmut decorates each function that it mutates."""

from __future__ import annotations

import inspect
import re
import sys
from types import FrameType
from typing import Any


def frame_at(depth: int) -> FrameType:
    """Return a frame below the caller's, those of mutmut left out.

    >>> frame_at(0).f_code.co_name
    '<module>'
    """
    frame = sys._getframe(1)
    while depth and frame.f_back is not None:
        frame = frame.f_back
        depth -= "mutmut" not in frame.f_code.co_filename.replace("\\", "/").split("/")
    return frame


def source_of(function: Any) -> str:
    """Return the source of a function, as it was before it was mutated.

    >>> source_of(source_of).startswith("def source_of(")
    True
    """
    return re.sub(r"^\s*@_mutmut_mutated\(.*\)\n", "", inspect.getsource(function))
