"""`map_async` on a keyed stream: the records of the queue are keyed state.

Calls for one key run one after another (`CallsByKey`). The keyed state is written when a snapshot is taken.
The number in an idempotency key counts the records of the key group, so it does not depend on the
parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.runtime.operators.functions.async_map import (
    CALLS,
    AsyncMapOperator,
    AsyncSettings,
    SavedEntry,
    saved_entry,
)
from penstock.runtime.operators.functions.async_queue import AwaitedRecord, CallsByKey
from penstock.runtime.operators.functions.function_operator import (
    KeyedFunctionOperator,
    only_table,
    rows_of,
)
from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.record.elements import Batch
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.key_groups import key_group_of

#: Name of the list state with the number of records of each key group.
GROUP_COUNTS: Final = "async_group_counts"


class KeyedAsyncMapOperator(KeyedFunctionOperator, AsyncMapOperator):
    """Runs the calls for each key one after another; the records of the queue are keyed state."""

    def __init__(
        self,
        key_selector: Callable[[Any], Any],
        function: Callable[..., Any] | FunctionClass,
        settings: AsyncSettings,
    ) -> None:
        AsyncMapOperator.__init__(self, function, settings)
        KeyedFunctionOperator._select_keys(self, key_selector)
        self._by_key = CallsByKey()
        self._group_counts: dict[int, int] = {}
        self._saved_keys: set[Any] = set()

    def open(self, context: OperatorContext) -> None:
        assert context.keyed_state is not None, "a keyed operator is given keyed state"
        self._max_parallelism = context.keyed_state.max_parallelism
        self._table = only_table(context, CALLS, "map_async")
        groups = context.keyed_state.key_groups
        self._group_counts = {g: n for g, n in context.restored.get(GROUP_COUNTS, ()) if g in groups}
        super().open(context)

    def _parts(self, batch: Batch) -> Iterator[tuple[Batch, Any]]:
        rows = rows_of(batch)
        keys = self._keys_of(rows)
        return ((part, key) for (part, _), key in zip(super()._parts(rows), keys, strict=True))

    def _number(self, of_key: Any) -> str:
        group = key_group_of(of_key, self._max_parallelism)
        number = self._group_counts.get(group, 0)
        self._group_counts[group] = number + 1
        return f"g{group}/{number}"

    def _saved_calls(self) -> Mapping[str, SavedList]:
        by_key: dict[Any, list[SavedEntry]] = {}
        for element in self._queue:
            if isinstance(element, AwaitedRecord):
                by_key.setdefault(element.of_key, []).append(saved_entry(element))
        entries = self._table.entries
        for key in self._saved_keys.difference(by_key):
            del entries[key]
        entries.update(by_key)
        self._table.changed.update([*self._saved_keys.difference(by_key), *by_key])
        self._saved_keys = set(by_key)
        counts = list(self._group_counts.items())
        return {GROUP_COUNTS: SavedList(counts, RedistributionMode.UNION)}

    def _restored_calls(self, context: OperatorContext) -> Iterable[tuple[Any, SavedEntry]]:
        restored = list(self._table.entries.items())
        self._saved_keys = {key for key, _ in restored}
        return [(key, tuple(saved)) for key, many in restored for saved in many]
