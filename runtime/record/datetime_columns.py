"""A column of datetimes in one zone: 64-bit microseconds, made and read at C speed.

Python subtracts two datetimes of one and the same zone object by their wall time, and adds a duration to the
wall time too. So with an epoch in that zone nothing here depends on the zone's rules. No datetime has to
leave its zone and come back.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import repeat
from operator import add, attrgetter, floordiv, sub
from typing import Any, Final

import numpy as np

from penstock.runtime.record.leaf_types import UNSUPPORTED, zone_from_payload, zone_to_payload

_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - gets the column's own zone
_MICROSECOND: Final = timedelta(microseconds=1)
_fold = attrgetter("fold")
_zone = attrgetter("tzinfo")


def datetimes_to_payload(values: Sequence[datetime]) -> Any:
    r"""Write datetimes that all have the same zone object and no fold; else `UNSUPPORTED`.

    Example:
        >>> datetimes_to_payload([datetime(1970, 1, 1, 0, 0, 1)])
        [None, b'@B\x0f\x00\x00\x00\x00\x00']
    """
    zones = list(map(_zone, values))
    zone = zones[0]
    # By identity: two zones of equal offset but different names are equal.
    if len(set(map(id, zones))) != 1 or any(map(_fold, values)):
        return UNSUPPORTED
    payload = zone_to_payload(zone)
    if payload is UNSUPPORTED:
        return UNSUPPORTED
    since_epoch = map(sub, values, repeat(_EPOCH.replace(tzinfo=zone)))
    return [payload, struct.pack(f"<{len(values)}q", *map(floordiv, since_epoch, repeat(_MICROSECOND)))]


def datetimes_from_payload(payload: Any) -> list[datetime]:
    """Read a column that `datetimes_to_payload` wrote.

    Raises:
        OverflowError: A number is no date between the years 1 and 9999.
    """
    zone, raw = payload
    epoch = _EPOCH.replace(tzinfo=zone_from_payload(zone))
    since_epoch: list[timedelta] = np.frombuffer(raw, dtype="<m8[us]").tolist()
    return list(map(add, repeat(epoch), since_epoch))
