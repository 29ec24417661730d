"""``frame_at``: what ``sys._getframe`` is in the copy, where two functions of mutmut stand between a function and its caller."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["frame_at"]


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
