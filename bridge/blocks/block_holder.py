"""The actor that owns the blocks of a job's results until they are released.

A block is an Arrow IPC stream in Ray's object store. Whoever puts an object there keeps it alive, so this
actor does it: subtasks may die, and the Spark session may be stopped and started again. Ray spills blocks to
disk when memory gets short.

Blocks come in two steps, as a transactional sink needs it: staged under the name of a transaction, then
committed. Every call may be repeated.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Final, TypeAlias

import ray

from penstock.actors.shared.answers import ANSWER
from penstock.actors.shared.names import NAMESPACE
from penstock.actors.shared.repeated_call import RepeatedCall, while_unavailable

#: Job, operator, subtask, attempt, and number of the transaction in that attempt.
TransactionKey: TypeAlias = tuple[str, str, int, int, int]

#: How the names of all holders begin.
HOLDER_PREFIX: Final = "blocks:"
#: What messages call the actor that has the blocks.
HOLDER: Final = "the holder of the job's results"
#: Seconds for the bytes of a block to come.
FETCH: Final = 120.0


@dataclass(frozen=True, slots=True)
class Block:
    """One block.

    Attributes:
        data: Reference to its bytes.
        rows: Rows in it.
        size: Bytes.
        schema: Its Arrow schema, serialised.
    """

    data: ray.ObjectRef[bytes]
    rows: int
    size: int
    schema: bytes


class BlockHolder:
    """Holds blocks by transaction."""

    def __init__(self) -> None:
        #: The rows' schema, where it is given, by job and sink.
        self._sinks: dict[tuple[str, str], bytes | None] = {}
        self._staged: dict[TransactionKey, dict[int, Block]] = {}
        self._committed: set[TransactionKey] = set()
        #: Committed blocks by number; a number means the same block for ever.
        self._blocks: dict[int, tuple[TransactionKey, Block]] = {}
        self._numbers = count()

    def serve(self, job_id: str, operator: str, schema: bytes | None) -> None:
        """A subtask of this sink is going to bring rows."""
        self._sinks[job_id, operator] = schema

    def sinks(self, job_id: str) -> dict[str, bytes | None]:
        """The sinks of a job that have their rows here, and their schemas where they were given."""
        return {operator: schema for (job, operator), schema in self._sinks.items() if job == job_id}

    def stage(self, key: TransactionKey, place: int, data: bytes, rows: int, schema: bytes) -> None:
        """Keep the block at this place of a transaction, which nobody sees yet."""
        if key in self._committed:
            return  # said twice
        blocks = self._staged.setdefault(key, {})
        if place not in blocks:
            blocks[place] = Block(ray.put(data), rows, len(data), schema)

    def commit(self, keys: list[TransactionKey]) -> list[TransactionKey]:
        """Show transactions; one that is shown already stays as it is.

        Returns:
            Those that are not here.
        """
        missing = []
        for key in keys:
            if key in self._staged:
                self._committed.add(key)
                blocks = self._staged.pop(key)
                self._blocks |= {next(self._numbers): (key, blocks[place]) for place in sorted(blocks)}
            elif key not in self._committed:
                missing.append(key)
        return missing

    def drop(self, keys: list[TransactionKey]) -> None:
        """Forget staged transactions."""
        for key in keys:
            self._staged.pop(key, None)

    def drop_before(self, job_id: str, operator: str, attempt: int) -> int:
        """Forget what earlier attempts of a job's operator staged; how many transactions that were."""
        old = [key for key in self._staged if key[:2] == (job_id, operator) and key[3] < attempt]
        self.drop(old)
        return len(old)

    def blocks(self, job_id: str | None = None, operator: str | None = None) -> dict[int, Block]:
        """Committed blocks in the order of their commits, by number; all, or those of one sink of one job."""
        return {
            number: block
            for number, (key, block) in self._blocks.items()
            if job_id is None or key[:2] == (job_id, operator)
        }

    def release(self, job_id: str, operator: str) -> bool:
        """Forget a sink and its committed blocks.

        Returns:
            Whether the holder has no other.
        """
        for number in self.blocks(job_id, operator):
            del self._blocks[number]
        self._sinks.pop((job_id, operator), None)
        return not self._sinks

    def block(self, number: int) -> bytes:
        """The bytes of one committed block; Ray may have to fetch them from another node, or from its disk.

        Raises:
            ray.exceptions.GetTimeoutError: That takes more than two minutes.
            ray.exceptions.ObjectLostError: The block is gone with its node.
        """
        data: bytes = ray.get(self._blocks[number][1].data, timeout=FETCH)
        return data


def open_holder(name: str) -> Any:
    """Start a holder, which ends with this program."""
    actor: Any = ray.remote(BlockHolder)
    return actor.options(name=HOLDER_PREFIX + name, namespace=NAMESPACE, num_cpus=0).remote()


def find_holder(name: str) -> Any:
    """The holder of this name.

    Raises:
        ValueError: It is gone.
    """
    return ray.get_actor(HOLDER_PREFIX + name, namespace=NAMESPACE)


def ask_holder(method: Any, *arguments: Any) -> Any:
    """The answer of a holder, which may be asked twice."""
    call = partial(method.remote, *arguments)
    return RepeatedCall[Any](call, HOLDER, while_unavailable(ANSWER)).answer(2 * ANSWER)
