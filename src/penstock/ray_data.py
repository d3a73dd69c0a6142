"""Ray datasets in and out of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.bridge.ray_data import from_ray_dataset as from_ray_dataset
    from penstock.bridge.ray_data import to_ray_dataset as to_ray_dataset
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
