"""`SideOutputs`: the records that a function emits beside its main output, until they leave as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.runtime.operators.operator import Tagged
from penstock.runtime.operators.user_code.output_tag import OutputTag, declared_name, tag_name, tags_of
from penstock.runtime.operators.user_code.result_collector import OUTPUT_SLICE
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.state.own_copy import own_copy


class SideOutputs:
    """Collects records by tag.

    Args:
        kind: The class that declares the tags.

    Attributes:
        isolates: Whether records are copied unless they can't change.

    Raises:
        ConfigurationError: Two side outputs have one name.

    Example:
        >>> class Sort:
        ...     odd = OutputTag[int]()
        >>> side = SideOutputs(Sort)
        >>> side.emit(Sort.odd, 3, None)
        >>> list(side.take())
        [Tagged(tag='odd', batch=RowBatch(rows=[3], timestamps=None))]
    """

    def __init__(self, kind: type) -> None:
        self._owner = kind.__name__
        self._declared = tags_of(kind)
        self._rows: dict[str, list[Any]] = {}
        self._stamps: dict[str, list[int | None]] = {}
        self._count = 0
        self.isolates = True

    @property
    def is_full(self) -> bool:
        """Whether there is a batch's worth of records."""
        return self._count >= OUTPUT_SLICE

    def emit(self, tag: OutputTag[Any], record: Any, timestamp: int | None) -> None:
        """Keep a record until `take`.

        Raises:
            ConfigurationError: The tag is not declared.
        """
        name = tag_name(tag)
        rows = self._rows.get(name)
        if rows is None:
            declared_name(tag, self._declared, self._owner)
            rows, self._stamps[name] = self._rows.setdefault(name, []), []
        rows.append(own_copy(record) if self.isolates else record)
        self._stamps[name].append(timestamp)
        self._count += 1

    def take(self) -> Iterator[Tagged]:
        """The records so far, as one batch a tag; without timestamps where a record has none."""
        if not self._count:
            return
        taken, stamps = self._rows, self._stamps
        self._rows, self._stamps, self._count = {}, {}, 0
        for name, rows in taken.items():
            known = [stamp for stamp in stamps[name] if stamp is not None]
            yield Tagged(name, RowBatch(rows, known if len(known) == len(rows) else None))
