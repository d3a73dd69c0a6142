"""`OutputRows`: the output of a join over rows, made by the user's function or by merging dicts.

Merged dicts have the same names as the output of a join over Arrow batches (`column_names.py`). So a row
without a partner has `None` under each name that the other side has had so far. Snapshots hold the names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, SIDES, Side
from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.operators.user_code.failure import no_dict
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.row_columns import merging
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.own_copy import own_copy

#: Name of the list state with the names of each side.
NAMES: Final = "names"

_DICTS: Final = {dict}

#: Maximum number of names of a side: they are in memory, in each snapshot and in each row of the output.
MOST_NAMES: Final = 1_000


class OutputRows:
    """Makes the output of a pair, or of a row without a partner, with a user's function.

    Attributes:
        function: Called with a left and a right record; a missing partner is `None`.
    """

    def __init__(self, function: Callable[[Any, Any], Any]) -> None:
        self.function = function

    @property
    def user_functions(self) -> tuple[Callable[..., Any], ...]:
        return (self.function,)

    def isolate(self) -> None:
        """Give the function copies of the records, which are in state, unless it only reads them."""
        self.function = reading_both(self.function)

    def restore(self, context: OperatorContext) -> None:
        """Read the state; called once, before any row arrives."""

    def state(self) -> Mapping[str, SavedList]:
        return {}

    def note(self, side: Side, rows: Sequence[Any]) -> None:
        """Examine the rows of a batch before any of them is joined."""

    def pairs(self, lefts: Sequence[Any], rights: Sequence[Any]) -> list[Any]:
        """Return the outputs of pairs; if a user's function makes them, callers pass one pair at a time."""
        return [self.function(left, right) for left, right in zip(lefts, rights, strict=True)]

    def alone(self, side: Side, row: Any) -> Any:
        """The output of a row without a partner."""
        return self.function(row, None) if side == LEFT else self.function(None, row)


class MergedRows(OutputRows):
    """Merges dicts.

    Args:
        keys: Keys of both sides; if they have the same names, these appear once.
        suffix: Appended to a right name that the left side also has.

    Example:
        >>> output = MergedRows((ColumnKey(("k",)), ColumnKey(("k",))), "_right")
        >>> output.note(0, [{"k": 1, "v": 2}])
        >>> output.note(1, [{"k": 1, "v": 3}])
        >>> output.function({"k": 1, "v": 2}, {"k": 1, "v": 3}), output.alone(1, {"k": 1, "v": 3})
        ({'k': 1, 'v': 2, 'v_right': 3}, {'k': 1, 'v': None, 'v_right': 3})
    """

    def __init__(self, keys: tuple[ColumnKey, ColumnKey], suffix: str) -> None:
        super().__init__(self._merged)
        self._shared = keys[LEFT].names if keys[LEFT].names == keys[RIGHT].names else ()
        self._suffix = suffix
        #: The names of each side, in order of their first appearance.
        self._names: tuple[dict[str, None], dict[str, None]] = {}, {}
        #: Merges rows that have all names.
        self._merge: Callable[[Iterable[tuple[Any, Any]]], list[Any]] | None = None
        #: The left names, and the right ones with their names in the output.
        self._left: tuple[str, ...] = ()
        self._right: tuple[tuple[str, str], ...] = ()

    @property
    def user_functions(self) -> tuple[Callable[..., Any], ...]:
        return ()

    def isolate(self) -> None:
        """Do nothing: merging changes no record."""

    def restore(self, context: OperatorContext) -> None:
        for side, name in context.restored.get(NAMES, ()):
            self._names[side][name] = None
        self._name_right()

    def state(self) -> Mapping[str, SavedList]:
        names = [(side, name) for side, names in enumerate(self._names) for name in names]
        return {NAMES: SavedList(names, RedistributionMode.UNION)}

    def note(self, side: Side, rows: Sequence[Any]) -> None:
        known, before = self._names[side], len(self._names[side])
        if set(map(type, rows)) != _DICTS:
            for row in rows:
                check_dict(row)
        # Nearly all rows have the same names.
        for names in dict.fromkeys(map(tuple, rows)):
            known.update(dict.fromkeys(names))
        if len(known) > MOST_NAMES:
            msg = (
                f"the {SIDES[side]} records have had more than {MOST_NAMES:,} names, and each output row has "
                "all of them. If names hold data, move the data into values with a map before the join, or "
                "give select=function(left, right)"
            )
            raise PenstockError(msg)
        if len(known) > before:
            self._name_right()

    def pairs(self, lefts: Sequence[Any], rights: Sequence[Any]) -> list[Any]:
        # Reading a missing name from another kind of dict, such as a `defaultdict`, may add it to the state.
        if self._merge is not None and set(map(type, lefts)) == set(map(type, rights)) == _DICTS:
            try:
                return self._merge(zip(lefts, rights, strict=True))
            except KeyError:
                pass  # a row lacks a name that other rows have
        return super().pairs(lefts, rights)

    def alone(self, side: Side, row: Any) -> Any:
        other = {name: row[name] for name in self._shared if name in row}
        return self._merged(row, other) if side == LEFT else self._merged(other, row)

    def _merged(self, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
        if tuple(left) == self._left:
            merged = dict(left)
        elif self._shared and not self._left:
            merged = {name: right.get(name) for name in self._shared}
        else:
            merged = {name: left.get(name) for name in self._left}
        for name, output in self._right:
            merged[output] = right.get(name)
        return merged

    def _name_right(self) -> None:
        left = self._names[LEFT]
        named: dict[str, str] = {}
        for name in self._names[RIGHT]:
            if name in self._shared:
                continue
            output = f"{name}{self._suffix}" if name in left else name
            if (output in left and output != name) or output in named.values():
                msg = (
                    f"the output would have {output!r} twice: with the suffix {self._suffix!r} a right "
                    "name becomes equal to another name; rename one with map, or give another suffix"
                )
                raise PenstockError(msg)
            named[name] = output
        self._left, self._right = tuple(left), tuple(named.items())
        self._merge = merging(self._left, self._right) if left else None


def check_dict(record: Any) -> None:
    if not isinstance(record, dict):
        advice = "give join select=function(left, right), or make dicts with map before the join"
        raise PenstockError(no_dict("join", record, advice))


def reading_both(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wrap a function of two records so that it can change neither.

    Example:
        >>> row = {"n": 1}
        >>> reading_both(lambda left, right: left.pop("n"))(row, None), row
        (1, {'n': 1})
    """
    if only_reads(function):
        return function
    return lambda left, right: function(own_copy(left), own_copy(right))
