"""The contents of a window, and its results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Final, Protocol

from penstock.runtime.operators.functions.keyed_folds import OneResult, WindowFunction
from penstock.runtime.state.own_copy import own_copies, own_copy
from penstock.runtime.time.windows import TimeWindow

#: Kind of contents that are a list of records.
ALL_RECORDS: Final = "all records"


class WindowContents(Protocol):
    """The fold of a window operator over records; created for each subtask.

    A record that is in several windows is copied for each window, unless all functions only read. So a user's
    function can't change the contents of another window.

    Attributes:
        isolates: Whether any function of the subtask could change a record; set by the operator.
        overlap: Whether a record may be in several windows; set by the operator.
        function: The user's function that takes records.
        result_function: The user's function that makes results.
        merge_function: The user's function that merges contents.
        other_functions: The user's other functions, which return values and don't yield.
    """

    isolates: bool
    overlap: bool
    function: Callable[..., Any]
    result_function: Callable[..., Any]
    merge_function: Callable[..., Any]
    other_functions: Sequence[Callable[..., Any]]

    @property
    def keeps(self) -> str:
        """Name of the kind of contents; restored state of a different kind is refused."""
        ...

    def first(self, row: Any) -> Any: ...

    def add(self, contents: Any, row: Any) -> Any: ...

    def results(self, key: Any, window: TimeWindow, contents: Any) -> Iterable[Any] | None:
        """The records that a window emits when it fires."""
        ...

    def merged(self, first: Any, second: Any) -> Any:
        """Merge the contents of two windows; `first` belongs to the earlier window."""
        ...

    def copied(self, contents: Any) -> Any:
        """The contents for a window that stays open; a deep copy if a function could change them."""
        ...


class ReducedContents(OneResult):
    """Keeps one value, and emits it.

    Args:
        function: Combines the value so far and a record into the new value; may change and return either.
    """

    keeps: ClassVar[str] = "a reduced value"
    other_functions: Sequence[Callable[..., Any]] = ()

    def __init__(
        self, function: Callable[[Any, Any], Any], window_function: WindowFunction | None = None
    ) -> None:
        super().__init__(function, window_function)
        self.function = self.merge_function = function

    @property
    def add(self) -> Callable[[Any, Any], Any]:
        return self._add if self.isolates else self.function

    def first(self, row: Any) -> Any:
        return own_copy(row) if self.isolates and self.overlap else row

    def merged(self, first: Any, second: Any) -> Any:
        return self.add(first, second)

    def copied(self, contents: Any) -> Any:
        return own_copy(contents)

    def _result(self, contents: Any) -> Any:
        return contents

    def _add(self, contents: Any, row: Any) -> Any:
        return own_copy(self.function(contents, own_copy(row) if self.overlap else row))


class _RecordList:
    keeps: ClassVar[str] = ALL_RECORDS
    isolates: bool = True
    overlap: bool = False

    def first(self, row: Any) -> list[Any]:
        return self.add([], row)

    def add(self, contents: list[Any], row: Any) -> list[Any]:
        contents.append(own_copy(row) if self.isolates and self.overlap else row)
        return contents

    def merged(self, first: list[Any], second: list[Any]) -> list[Any]:
        return [*first, *second]


class ListedContents(_RecordList):
    """Keeps all records in order of arrival, and emits the result of a function over them."""

    other_functions: Sequence[Callable[..., Any]] = ()

    def __init__(self, function: Callable[[Any, TimeWindow, list[Any]], Iterable[Any] | None]) -> None:
        self.function = self.result_function = self.merge_function = function

    def results(self, key: Any, window: TimeWindow, contents: list[Any]) -> Iterable[Any] | None:
        return self.function(key, window, contents)

    def copied(self, contents: list[Any]) -> list[Any]:
        return own_copies(contents) if self.isolates else list(contents)


class FoldedContents(_RecordList):
    """Keeps all records, and folds them when the window emits; for count windows that slide."""

    overlap = True

    def __init__(self, inner: Callable[[], WindowContents]) -> None:
        self._inner = inner()
        # A record may be part of several results.
        self._inner.overlap = True
        self.function, self.result_function = self._inner.function, self._inner.result_function
        self.merge_function, self.other_functions = self._inner.merge_function, self._inner.other_functions

    @property
    def isolates(self) -> bool:
        return self._inner.isolates

    @isolates.setter
    def isolates(self, isolates: bool) -> None:
        self._inner.isolates = isolates

    def results(self, key: Any, window: TimeWindow, contents: list[Any]) -> Iterable[Any] | None:
        first, *others = contents
        folded = self._inner.first(first)
        for row in others:
            folded = self._inner.add(folded, row)
        return self._inner.results(key, window, folded)

    def copied(self, contents: list[Any]) -> list[Any]:
        return contents
