"""Communication that is moved and joined, in the order that every process expects.

``overlap`` starts early and waits late, ``bucket`` joins small collectives, ``joinable`` says which operators can be joined and
how they are written, ``starts`` tells what begins to communicate and what waits.
"""

from .bucket import bucket_collectives
from .overlap import overlap_communication

__all__ = ["bucket_collectives", "overlap_communication"]
