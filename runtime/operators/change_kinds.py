"""The kinds of a change, as operators, sources and sinks name them in a column of text.

The names are those of Delta's change data feed. Flink's are the row kinds `+I`, `-U`, `+U` and `-D`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

ChangeKind: TypeAlias = Literal["insert", "update_preimage", "update_postimage", "delete"]

#: Column with the kind of each change in the records of sources.
CHANGE_TYPE: Final = "_change_type"

#: Whether a change of a kind takes its row away. Otherwise the row is there after it.
DELETES: Final[Mapping[str, bool]] = {
    "insert": False,
    "update_preimage": True,
    "update_postimage": False,
    "delete": True,
}
