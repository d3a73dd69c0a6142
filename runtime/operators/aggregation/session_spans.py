"""Spans of event time of many keys, joined to sessions, without a loop over keys.

A span goes from one record to another that is in the same session. Spans of a key belong together when one
begins less than a gap after the end of those before it. They are sorted by key and beginning. Then a session
begins with a new key, or where a span begins a gap or more after the latest record so far. That *latest so
far* is a running maximum within each key. It is taken over all keys at once. For this, moments are replaced
by their ranks, and each key's ranks lie above those of the keys before it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Moments in microseconds, keys and places.
Numbers = NDArray[np.int64]


class JoinedSpans(NamedTuple):
    """Sessions made of spans.

    Attributes:
        session: The session of each span, counted from 0.
        keys: The key of each session.
        firsts: The moment of the first record in each.
        lasts: The latest moment in each.
    """

    session: Numbers
    keys: Numbers
    firsts: Numbers
    lasts: Numbers


def joined(keys: Numbers, firsts: Numbers, lasts: Numbers, gap: int) -> JoinedSpans:
    """Join the spans of each key that are less than a gap apart.

    Args:
        keys: A number for the key of each span.
        firsts: When each span begins.
        lasts: When the last record of each span was.
        gap: Microseconds.

    Example:
        >>> spans = joined(np.array([7, 8, 7, 7]), np.array([20, 0, 0, 9]), np.array([20, 0, 4, 9]), gap=10)
        >>> spans.session.tolist(), spans.keys.tolist()
        ([1, 2, 0, 0], [7, 7, 8])
        >>> spans.firsts.tolist(), spans.lasts.tolist()
        ([0, 20, 0], [9, 20, 0])
    """
    order = np.lexsort((firsts, keys))
    keys, firsts = keys[order], firsts[order]
    moments, ranks = _ranked(lasts[order])
    is_new_key = np.ones(len(keys), np.bool_)
    is_new_key[1:] = keys[1:] != keys[:-1]
    above = (np.cumsum(is_new_key) - 1) * len(moments)
    latest = moments[np.maximum.accumulate(ranks + above) - above]
    begins = is_new_key.copy()
    begins[1:] |= firsts[1:] - latest[:-1] >= gap
    places = np.flatnonzero(begins)
    session = np.empty(len(keys), np.int64)
    session[order] = np.cumsum(begins) - 1
    ends = np.append(places[1:], len(keys)) - 1
    return JoinedSpans(session, keys[places], firsts[places], latest[ends])


def _ranked(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """The numbers in order, and the place of each one there; of equal ones any."""
    order = np.argsort(numbers)
    ranks = np.empty(len(numbers), np.int64)
    ranks[order] = np.arange(len(numbers))
    return numbers[order], ranks
