"""Reads Kafka's part of a checkpoint or savepoint: positions of sources, flushed transactions of sinks.

Only tools use this module; a job restores its own state without it. Nothing is unpickled, and no module of
the user is imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.runtime.checkpoint.recovery import OpenedSnapshot
from penstock.runtime.errors import CodecError
from penstock.runtime.io.connectors.kafka.partitions import KafkaPartitionSplit
from penstock.runtime.io.connectors.kafka.transactions import KafkaCommittable
from penstock.runtime.operators.sinks import COMMITTABLES
from penstock.runtime.operators.source_operator import SPLITS
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.metadata import decode_atoms, read_state


def positions_in(snapshot: OpenedSnapshot) -> list[tuple[str, KafkaPartitionSplit]]:
    """Return the partitions that sources had not read to their end, each with the id of its operator; blocks.

    Raises:
        CorruptSnapshotError: A file of the snapshot is damaged.
    """
    found = _saved(snapshot, SPLITS, KafkaPartitionSplit)
    return sorted(found, key=lambda entry: (entry[0], entry[1].name))


def committables_in(snapshot: OpenedSnapshot) -> list[tuple[str, KafkaCommittable]]:
    """Return the transactions that sinks had flushed and not committed, each with its operator; blocks.

    Raises:
        CorruptSnapshotError: A file of the snapshot is damaged.
    """
    found = _saved(snapshot, COMMITTABLES, KafkaCommittable)
    return sorted(found, key=lambda entry: (entry[0], entry[1].transactional_id))


def _saved(snapshot: OpenedSnapshot, name: str, kind: type[Any]) -> Iterator[tuple[str, Any]]:
    """Yield the values of a class in the lists of this name, alone or in tuples; other values are skipped."""
    codec = ValueCodec(allow_pickle=False, classes=(KafkaPartitionSplit, KafkaCommittable))
    for state in snapshot.checkpoint.operators.values():
        for subtask in state.subtasks.values():
            for handle in subtask.operator:
                if handle.name == name:
                    for atom in decode_atoms(read_state(snapshot.storage, handle.state), "the snapshot"):
                        try:
                            value = codec.loads(atom)
                        except CodecError:  # a value of another connector, whose class is not known here
                            continue
                        yield from ((state.operator_id, each) for each in _within(value, kind))


def _within(value: Any, kind: type[Any]) -> Iterator[Any]:
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _within(part, kind)
