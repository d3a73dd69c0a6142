"""`Leaders`: the brokers of a cluster, and the one that leads each partition.

If a broker dies, its partitions have no leader until others are elected. The new leaders lack no acknowledged
record, as with `acks=all` and enough replicas in sync. The broker comes back as a follower.
"""

from __future__ import annotations

import zlib
from typing import Final, TypeAlias

from penstock.runtime.ports import Clock

Place: TypeAlias = tuple[str, int]

#: The time of an event before the run.
_NEVER: Final = float("-inf")


class Leaders:
    """The leaders of a cluster whose brokers are numbered from 1. At most one of them is dead at a time."""

    def __init__(self, brokers: int, clock: Clock) -> None:
        self.brokers = brokers
        self._clock = clock
        self._moved: dict[Place, int] = {}
        #: For a broker that died: the times of the election and of its return.
        self._dead: dict[int, tuple[float, float]] = {}

    def of(self, place: Place) -> int | None:
        """The leader of a partition; `None` while there is none."""
        topic, number = place
        leader = self._moved.get(place, (zlib.crc32(topic.encode()) + number) % self.brokers + 1)
        elected_at, returns_at = self._dead.get(leader, (_NEVER, _NEVER))
        now = self._clock.monotonic()
        if now >= returns_at:
            return leader
        if now < elected_at:
            return None
        self._moved[place] = follower = leader % self.brokers + 1
        return follower

    def die(self, broker: int, *, election: float, absence: float) -> None:
        """Let a broker die; seconds until other leaders are elected, and until it is back."""
        now = self._clock.monotonic()
        self._dead = {broker: (now + election, now + absence)}

    def calm_down(self) -> None:
        """Bring all brokers back."""
        self._dead = {}
