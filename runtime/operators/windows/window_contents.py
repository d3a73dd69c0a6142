"""What a window keeps of its records, and what it makes of that in the end."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from penstock.runtime.operators.functions.watched_reduce import WatchedReduce
from penstock.runtime.operators.user_code.result_collector import iterator_of
from penstock.runtime.operators.windows.watched_window import WatchedWindow
from penstock.runtime.time.windows import TimeWindow

T = TypeVar("T")
A = TypeVar("A")
R = TypeVar("R")

#: Types whose values never change.
_UNCHANGING: Final = frozenset((int, float, bool, str, bytes, type(None)))


class AggregateFunction(ABC, Generic[T, A, R]):
    """Folds the records of a window into an accumulator (Flink's `AggregateFunction`).

    Example:
        >>> class Mean(AggregateFunction[float, tuple[float, int], float]):
        ...     def create_accumulator(self):
        ...         return 0.0, 0
        ...
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        >>> mean = Mean()
        >>> mean.get_result(mean.add(2.0, mean.add(1.0, mean.create_accumulator())))
        1.5
    """

    @abstractmethod
    def create_accumulator(self) -> A:
        """The accumulator of a window that has no record yet."""

    @abstractmethod
    def add(self, value: T, accumulator: A) -> A:
        """The accumulator with one more record: a new one, or the same one changed."""

    @abstractmethod
    def get_result(self, accumulator: A) -> R:
        """What the window emits."""

    def merge(self, first: A, second: A) -> A:
        """The accumulator of the records of two; only windows that merge, such as sessions, need it.

        Args:
            first: Of the window that began earlier; it may be changed and returned.
        """
        raise NotImplementedError


def has_merge(aggregate: AggregateFunction[Any, Any, Any]) -> bool:
    """Whether a user's function can merge accumulators."""
    return type(aggregate).merge is not AggregateFunction.merge


class WindowContents(Protocol):
    """How a window operator folds records; created for each subtask.

    Attributes:
        overlap: Whether a record may be in several windows; the operator says so.
        other_functions: Functions of the user's beside `function`, which return values and don't yield.
    """

    overlap: bool
    other_functions: Sequence[Callable[..., Any]]

    @property
    def keeps(self) -> str:
        """What it keeps, in words: contents of one kind are not taken for those of another."""
        ...

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function that takes records, for checks and errors."""
        ...

    @property
    def result_function(self) -> Callable[..., Any]:
        """The user's function that results come from, for errors."""
        ...

    def first(self, row: Any) -> Any:
        """Contents of a window with one record."""
        ...

    def add(self, contents: Any, row: Any) -> Any:
        """Contents with one record more."""
        ...

    def results(self, key: Any, window: TimeWindow, contents: Any) -> Iterable[Any] | None:
        """The records that a window emits when event time has passed it."""
        ...

    def merged(self, first: Any, second: Any) -> Any:
        """Contents of a window that was made of two, the earlier one first."""
        ...

    def copied(self, contents: Any) -> Any:
        """Contents for `results` of a window that goes on: no result shares a part with what stays."""
        ...


class ReducedContents:
    """Keeps one value, and emits it.

    Args:
        function: From the value so far and a record to the new value: a new one, or one of the two as it is.
            The first record of a window is its first value, and may be in other windows, too.
    """

    keeps: ClassVar[str] = "a reduced value"
    overlap = False
    other_functions: Sequence[Callable[..., Any]] = ()

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = self.result_function = function
        self._watched = WatchedReduce(function, "a record that may be in other windows", both=True)

    @property
    def add(self) -> Callable[[Any, Any], Any]:
        """The user's function."""
        return self._watched.to_call

    def first(self, row: Any) -> Any:
        """The first record is the first value."""
        return row

    def results(self, key: Any, window: TimeWindow, contents: Any) -> list[Any]:
        """The value."""
        return [contents]

    def merged(self, first: Any, second: Any) -> Any:
        """Both values combined."""
        return self.add(first, second)

    def copied(self, contents: Any) -> Any:
        """The same: the function makes new values."""
        return contents


class AggregatedContents:
    """Keeps an accumulator, and emits its result.

    Args:
        aggregate: The user's function object; a copy of it is used, so that subtasks share nothing.
    """

    keeps: ClassVar[str] = "an accumulator"
    overlap = False

    def __init__(self, aggregate: AggregateFunction[Any, Any, Any]) -> None:
        self._aggregate = copy.deepcopy(aggregate)
        self.function, self.result_function = self._aggregate.add, self._aggregate.get_result
        self.other_functions: Sequence[Callable[..., Any]] = (
            self._aggregate.create_accumulator,
            self._aggregate.get_result,
        )
        self._watched = WatchedWindow()

    def first(self, row: Any) -> Any:
        """An accumulator with one record."""
        return self.add(self._aggregate.create_accumulator(), row)

    @property
    def add(self) -> Callable[[Any, Any], Any]:
        """From an accumulator to that with one record more."""
        return self._watch if self.overlap and not self._watched.is_enough else self._add

    def results(self, key: Any, window: TimeWindow, contents: Any) -> list[Any]:
        """The accumulator's result."""
        return [self._aggregate.get_result(contents)]

    def merged(self, first: Any, second: Any) -> Any:
        """Both accumulators merged."""
        return self._aggregate.merge(first, second)

    def copied(self, contents: Any) -> Any:
        """A copy: the function may change its accumulator in place, and give a part of it as the result."""
        return contents if type(contents) in _UNCHANGING else copy.deepcopy(contents)

    def _add(self, contents: Any, row: Any) -> Any:
        return self._aggregate.add(row, contents)

    def _watch(self, contents: Any, row: Any) -> Any:
        return self._watched.returned((row,), lambda: self._aggregate.add(row, contents))


class ListedContents:
    """Keeps all records, and emits what a function makes of them.

    Args:
        function: From key, window and the records in the order of their coming to the records to emit.
    """

    keeps: ClassVar[str] = "all records"
    overlap = False
    other_functions: Sequence[Callable[..., Any]] = ()

    def __init__(self, function: Callable[[Any, TimeWindow, list[Any]], Iterable[Any] | None]) -> None:
        self.function = self.result_function = function
        self._watched = WatchedWindow()

    def first(self, row: Any) -> list[Any]:
        """A list of one record."""
        return [row]

    def add(self, contents: list[Any], row: Any) -> list[Any]:
        """The list, longer by one."""
        contents.append(row)
        return contents

    def results(self, key: Any, window: TimeWindow, contents: list[Any]) -> Iterable[Any] | None:
        """What the function makes of the records."""
        if self.overlap and not self._watched.is_enough:
            return self._watched.used_up(contents, lambda: self.function(key, window, contents))
        return self.function(key, window, contents)

    def merged(self, first: list[Any], second: list[Any]) -> list[Any]:
        """The records of both."""
        return [*first, *second]

    def copied(self, contents: list[Any]) -> list[Any]:
        """A list of its own, of the same records."""
        return list(contents)


class PreAggregatedContents:
    """Folds records as others do, and hands the result of a window to a function.

    Args:
        inner: Makes what folds the records.
        window_function: From key, window and the result to the records to emit.
    """

    other_functions: Sequence[Callable[..., Any]]

    def __init__(
        self,
        inner: Callable[[], WindowContents],
        window_function: Callable[[Any, TimeWindow, Any], Iterable[Any] | None],
    ) -> None:
        self._inner = inner()
        self.keeps = self._inner.keeps
        self.function, self.result_function = self._inner.function, window_function
        self.other_functions = self._inner.other_functions
        self.first, self.merged, self.copied = self._inner.first, self._inner.merged, self._inner.copied

    @property
    def overlap(self) -> bool:
        """Whether a record may be in several windows."""
        return self._inner.overlap

    @overlap.setter
    def overlap(self, overlap: bool) -> None:
        self._inner.overlap = overlap

    @property
    def add(self) -> Callable[[Any, Any], Any]:
        """From contents to those with one record more."""
        return self._inner.add

    def results(self, key: Any, window: TimeWindow, contents: Any) -> Iterator[Any]:
        """What the function makes of the result."""
        for result in self._inner.results(key, window, contents) or ():
            made = self.result_function(key, window, result)
            if made is not None:
                yield from iterator_of(made)


class FoldedContents:
    """Keeps all records, and folds them as others do when the window emits; for windows that forget some.

    Args:
        inner: Makes what folds the records.
    """

    keeps: ClassVar[str] = "all records"

    def __init__(self, inner: Callable[[], WindowContents]) -> None:
        self._inner = inner()
        # A record is in several results, and none of them may change it.
        self._inner.overlap = True
        self.overlap = True
        self.function, self.result_function = self._inner.function, self._inner.result_function
        self.other_functions = self._inner.other_functions

    def first(self, row: Any) -> list[Any]:
        """A list of one record."""
        return [row]

    def add(self, contents: list[Any], row: Any) -> list[Any]:
        """The list, longer by one."""
        contents.append(row)
        return contents

    def results(self, key: Any, window: TimeWindow, contents: list[Any]) -> Iterable[Any] | None:
        """What the records are folded into."""
        first, *others = contents
        folded = self._inner.first(first)
        for row in others:
            folded = self._inner.add(folded, row)
        return self._inner.results(key, window, folded)

    def merged(self, first: list[Any], second: list[Any]) -> list[Any]:
        """The records of both."""
        return [*first, *second]

    def copied(self, contents: list[Any]) -> list[Any]:
        """The same: nothing that is folded is the list."""
        return contents
