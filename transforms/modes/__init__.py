"""Regions in which operators run in another mode: between two markers, or as the body of an operator.

``modes`` says in which gradient mode each graph runs; ``regions`` finds the regions of a graph; ``to_bodies`` and ``to_regions``
are the two transformations.
"""

from __future__ import annotations

from .to_bodies import regions_to_bodies
from .to_regions import bodies_to_regions

__all__ = ["bodies_to_regions", "regions_to_bodies"]
