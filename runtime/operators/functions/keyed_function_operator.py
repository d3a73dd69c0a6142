"""`KeyedFunctionOperator`: what operators around one function of the user and a key selector share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.functions.function_operator import FunctionOperator, check_function
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.user_code.emission import reading
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.state.columns.column_table import ColumnTable
from penstock.runtime.state.stable_hash import stable_hash, types_of_keys
from penstock.runtime.state.state_backend import KeyedStateBackend, KeyedTable
from penstock.runtime.user_location import function_location


class KeyedFunctionOperator(FunctionOperator):
    """Selects the keys of a whole batch first, and says whose fault it is when the key selector fails.

    A sender that has a single receiver does not look at all keys. So a subclass checks each key that is new
    to it with `_check_key`; one that it knows has been checked. Types that are new are checked here: a known
    key may come again as another type.

    Args:
        key_selector: From a record to its key.
        function: The user's function.
    """

    keyed = True

    def __init__(self, key_selector: Callable[[Any], Any], function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._select = key_selector
        self._selecting = False
        self._checked_types: set[type] = set()
        self._look = key_selector

    def open(self, context: OperatorContext) -> None:
        """Check both functions.

        Raises:
            ConfigurationError: One of them can't work.
        """
        super().open(context)
        check_function("key_by", self._select)
        self._look = self._select if not self.isolates else reading(self._select)

    @property
    def doing(self) -> str:
        """The function that runs: the operator's own or the key selector."""
        return selector_location(self._select) if self._selecting else super().doing

    @property
    def only_reads(self) -> bool:
        """Whether neither function can change or keep a record."""
        return super().only_reads and only_reads(self._select)

    def _keys_of(self, batch: RowBatch) -> list[Any]:
        select = self._look
        self._selecting = True
        keys = [select(row) for row in self._cursor.over(batch.rows)]
        kinds = types_of_keys(keys)
        if not kinds <= self._checked_types:
            for key, _ in zip(keys, self._cursor.over(batch.rows), strict=True):
                stable_hash(key)
            self._checked_types |= kinds
        self._selecting = False
        return keys

    def _check_key(self, key: Any) -> None:
        """Refuse what can't be a key: then the key selector is to blame.

        Raises:
            KeyTypeError: It can't be one.
        """
        self._selecting = True
        stable_hash(key)
        self._selecting = False

    def _after_type_error(self, key: Any) -> None:
        """A `TypeError` on the way: Python raises no other one where an unhashable key is looked up.

        Raises:
            KeyTypeError: The key was the reason.
        """
        if not self._selecting:
            self._check_key(key)


def selector_location(select: Callable[[Any], Any]) -> str:
    """How messages call what gives a record its key: `key_by function len`, or `key_by column 'k'`."""
    if isinstance(select, ColumnKey):
        return f"key_by {select.__name__}"
    return f"key_by function {function_location(select)}"


def keyed_state_of(context: OperatorContext) -> KeyedStateBackend:
    """The keyed state that a keyed operator is opened with."""
    assert context.keyed_state is not None, "a keyed operator is given keyed state"
    return context.keyed_state


def only_table(context: OperatorContext, name: str, owner: str) -> KeyedTable:
    """The table of an operator that keeps all of its keyed state in one.

    Args:
        context: What the operator is opened with.
        name: The table's name.
        owner: What has such a table, for the message.

    Raises:
        StateMismatchError: The restored state is another kind of operator's.
    """
    return _own_state(context, (name,), owner).table(name)


def only_nested_table(context: OperatorContext, name: str, owner: str) -> KeyedTable:
    """The nested table of an operator that has no other keyed state; see `only_table`.

    Raises:
        StateMismatchError: The restored state is another kind of operator's.
    """
    return _own_state(context, (name,), owner).table(name, nested=True)


def only_column_tables(
    context: OperatorContext, names: Sequence[str], owner: str
) -> Mapping[str, ColumnTable]:
    """The tables in columns of an operator that has no other keyed state; see `only_table`.

    Raises:
        StateMismatchError: The restored state is another kind of operator's.
    """
    state = _own_state(context, names, owner)
    return {name: state.column_table(name) for name in names}


def _own_state(context: OperatorContext, names: Sequence[str], owner: str) -> KeyedStateBackend:
    state = keyed_state_of(context)
    foreign = [other for other in state.table_names if other not in names]
    if foreign:
        msg = (
            f"the restored state holds {', '.join(map(repr, foreign))}: it belonged to another kind of "
            f"operator with this id, not to {owner}. Give the operator a new id"
        )
        raise StateMismatchError(msg)
    return state
