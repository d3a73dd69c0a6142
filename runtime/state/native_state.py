"""Refuses keyed state that only the backend that has written it can read."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.snapshot.handles import KeyedStateHandle


def need_canonical(handles: Iterable[KeyedStateHandle]) -> None:
    """See that every backend and every tool can read this state.

    Raises:
        StateMismatchError: It is in the files of RocksDB, as its checkpoints are.

    Example:
        >>> from penstock.runtime.snapshot.handles import InlineHandle, KeyGroupRange
        >>> file = InlineHandle(b"...")
        >>> need_canonical([KeyedStateHandle(KeyGroupRange(0, 9), (file,), names=("000008.sst",))])
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.StateMismatchError: this checkpoint holds keyed state in the files of \
RocksDB, which only an operator with state_backend=RocksDB() can start from. Take a savepoint: every \
backend reads that
    """
    if any(handle.is_native for handle in handles):
        msg = (
            "this checkpoint holds keyed state in the files of RocksDB, which only an operator with "
            "state_backend=RocksDB() can start from. Take a savepoint: every backend "
            "reads that"
        )
        raise StateMismatchError(msg)
