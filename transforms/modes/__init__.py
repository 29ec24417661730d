"""Regions in which operators run in another mode: nodes between two markers, or the body of an operator.

``regions_to_bodies`` and ``bodies_to_regions`` convert between the two forms.
"""

from __future__ import annotations

from .modes import bodies_to_regions, regions_to_bodies

__all__ = ["bodies_to_regions", "regions_to_bodies"]
