"""`RecordFormat`: whether a source gives Arrow batches or rows."""

from __future__ import annotations

from typing import Literal, TypeAlias

#: `"arrow"` gives Arrow batches, `"rows"` gives dicts.
RecordFormat: TypeAlias = Literal["arrow", "rows"]
