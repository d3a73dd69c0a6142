"""The version of the installed distribution. `pyproject.toml` is its only source."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

__version__: Final = version("penstock")
