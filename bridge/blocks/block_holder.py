"""The actor that owns the blocks of a job's results until they are released.

A block is an Arrow IPC stream in Ray's object store. Ray keeps an object as long as its owner lives. So this
actor puts all blocks: subtasks may die, and the Spark session may be restarted. Ray spills blocks to disk
when memory gets short.

Blocks are staged under a transaction and then committed, as a transactional sink needs it. Every call may be
repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

import ray

from penstock.actors.shared.actor_calls import ANSWER, RepeatedCall, while_unavailable
from penstock.actors.shared.registry import NAMESPACE

#: Job, operator, subtask, attempt, and number of the transaction in that attempt.
TransactionKey: TypeAlias = tuple[str, str, int, int, int]

#: Prefix of the names of all holders.
HOLDER_PREFIX: Final = "blocks:"
#: Name of a holder in messages.
HOLDER: Final = "the holder of the job's results"
#: Seconds to wait for the bytes of a block.
FETCH: Final = 120.0


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    Attributes:
        size: Bytes.
        schema: Its Arrow schema, serialised.
    """

    data: ray.ObjectRef[bytes]
    rows: int
    size: int
    schema: bytes


class BlockHolder:
    def __init__(self) -> None:
        #: Schema of the rows by job and sink, `None` while unknown; sinks that started last are last.
        self._sinks: dict[tuple[str, str], bytes | None] = {}
        self._staged: dict[TransactionKey, dict[int, Block]] = {}
        self._committed: set[TransactionKey] = set()
        #: Committed blocks by number; numbers are never reused.
        self._blocks: dict[int, tuple[TransactionKey, Block]] = {}
        self._numbers = count()

    def serve(self, job_id: str, operator: str, schema: bytes | None) -> None:
        self._sinks[job_id, operator] = schema

    def sinks(self, job_id: str) -> dict[str, bytes | None]:
        return {operator: schema for (job, operator), schema in self._sinks.items() if job == job_id}

    def stage(self, key: TransactionKey, position: int, data: bytes, rows: int, schema: bytes) -> None:
        """Keep a block at its position in a transaction; readers don't see it before the commit."""
        if key in self._committed:
            return  # a repeated call
        blocks = self._staged.setdefault(key, {})
        if position not in blocks:
            blocks[position] = Block(ray.put(data), rows, len(data), schema)

    def commit(self, keys: list[TransactionKey]) -> list[TransactionKey]:
        """Make the blocks of transactions visible; committed transactions are skipped.

        Returns:
            The transactions that the holder does not have.
        """
        missing = []
        for key in keys:
            if key in self._staged:
                self._committed.add(key)
                blocks = self._staged.pop(key)
                self._blocks |= {next(self._numbers): (key, blocks[position]) for position in sorted(blocks)}
            elif key not in self._committed:
                missing.append(key)
        return missing

    def drop_before(self, job_id: str, operator: str, attempt: int) -> int:
        """Drop the staged blocks of an operator's earlier attempts; return the number of transactions."""
        old = [key for key in self._staged if key[:2] == (job_id, operator) and key[3] < attempt]
        for key in old:
            del self._staged[key]
        return len(old)

    def blocks(self, job_id: str | None = None, operator: str | None = None) -> dict[int, Block]:
        """Committed blocks of one job by number, in the order of commits; optionally those of one sink.

        Args:
            job_id: The job; `None` takes the one whose subtasks began last.
            operator: The sink; `None` takes all.
        """
        if job_id is None:
            job_id = next(reversed(self._sinks), ("", ""))[0]
        return {
            number: block
            for number, (key, block) in self._blocks.items()
            if key[0] == job_id and operator in (None, key[1])
        }

    def release(self, job_id: str, operator: str) -> bool:
        """Forget a sink and its committed blocks; return whether the holder has no other sink."""
        for number in self.blocks(job_id, operator):
            del self._blocks[number]
        self._sinks.pop((job_id, operator), None)
        return not self._sinks

    def block(self, number: int) -> bytes:
        """The bytes of a committed block; Ray may fetch them from another node or from disk.

        Raises:
            ray.exceptions.GetTimeoutError: The bytes did not arrive within two minutes.
            ray.exceptions.ObjectLostError: The block is gone with its node.
        """
        data: bytes = ray.get(self._blocks[number][1].data, timeout=FETCH)
        return data


def open_holder(name: str) -> Any:
    actor: Any = ray.remote(BlockHolder)
    return actor.options(name=HOLDER_PREFIX + name, namespace=NAMESPACE, num_cpus=0).remote()


def find_holder(name: str) -> Any:
    """The holder of this name.

    Raises:
        ValueError: The holder has ended.
    """
    return ray.get_actor(HOLDER_PREFIX + name, namespace=NAMESPACE)


def ask_holder(method: Any, *arguments: Any) -> Any:
    """Call a holder; the call must be idempotent, since it may be repeated."""
    call = partial(method.remote, *arguments)
    return RepeatedCall[Any](call, HOLDER, while_unavailable(ANSWER)).answer(2 * ANSWER)
