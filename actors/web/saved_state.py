"""Reads the newest snapshot of a job: its content, and the value of one key in it.

A snapshot belongs to its job, and may hold values of users' classes. This module unpickles and imports
nothing: such values are shown in their encoded form.
"""

from __future__ import annotations

import json
from typing import Any, Final

from penstock.actors.shared.job_report import JobReport
from penstock.runtime.checkpoint.recovery import OpenedSnapshot, open_snapshot
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.storage import absolute_location, open_location
from penstock.runtime.names import normal_name
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange, StateHandle
from penstock.runtime.snapshot.metadata import read_state
from penstock.runtime.state.key_groups import key_group_of
from penstock.runtime.state_processor.inspection import inspect_snapshot
from penstock.runtime.state_processor.state_reading import (
    known_states,
    no_such_state,
    operator_state,
    read_keyed,
)

#: Maximum number of shown entries of one key, and of characters of each.
_MOST_ENTRIES: Final = 100
_MOST_CHARACTERS: Final = 2_000


def newest_snapshot(report: JobReport) -> dict[str, Any]:
    """Content of the newest snapshot of a job, as `penstock inspect --json` prints it; blocks.

    Raises:
        ConfigurationError: The job takes no checkpoints.
        RestoreError: The job has no snapshot yet, or it is damaged.
        StorageError: The storage can't be read.
    """
    opened = _open(report)
    summary = inspect_snapshot(
        opened.checkpoint, lambda handle: read_state(opened.storage, handle), ValueCodec(allow_pickle=False)
    )
    return summary.to_dict()


def value_of_key(report: JobReport, operator: str, state: str, key: str) -> dict[str, Any]:
    """The value of one key in the newest snapshot of a job; blocks.

    Args:
        key: The key as JSON, or else as plain text. A list is a tuple.

    Raises:
        ConfigurationError: The operator or state does not exist, or the job takes no checkpoints.
        RestoreError: The job has no snapshot, or it is damaged.
        StorageError: The storage can't be read.
    """
    opened, state = _open(report), normal_name(state)
    held = operator_state(opened.checkpoint, operator)

    def read(handle: StateHandle) -> bytes:
        return read_state(opened.storage, handle)

    wanted = key_of(key)
    group = key_group_of(wanted, held.max_parallelism)
    codec = ValueCodec(allow_pickle=False)
    entries = read_keyed(held, state, KeyGroupRange(group, group), read, codec)
    if entries is None:
        raise no_such_state(held, state, known_states(held, read))
    places = [place for place, each in enumerate(entries.keys) if each == wanted]
    return {
        "key": repr(wanted),
        "key_group": group,
        "kind": opened.checkpoint.kind.value,
        "checkpoint_id": opened.checkpoint.checkpoint_id,
        "found": bool(places),
        "entries": [
            {
                "part": None if entries.parts is None else _shown(entries.parts[place]),
                "value": _shown(entries.values[place]),
            }
            for place in places[:_MOST_ENTRIES]
        ],
        "more": max(0, len(places) - _MOST_ENTRIES),
    }


def key_of(text: str) -> Any:
    """The key that a text denotes.

    Example:
        >>> key_of("7"), key_of("seven"), key_of('"7"'), key_of('["a", 1]')
        (7, 'seven', '7', ('a', 1))
    """
    try:
        return _as_tuples(json.loads(text))
    except (ValueError, RecursionError):
        return text


def _as_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        msg = "a key is a number, a text, true, false, null, or a list of these"
        raise ConfigurationError(msg)
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _open(report: JobReport) -> OpenedSnapshot:
    if report.storage is None:
        msg = f"job {report.job_id} takes no checkpoints, so none of its state is saved"
        raise ConfigurationError(msg)
    storage = absolute_location("storage", report.storage).rstrip("/")
    return open_snapshot(f"{storage}/{report.job_id}", open_location)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}… ({len(text):,} characters)"
