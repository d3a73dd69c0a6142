"""`CheckpointingMode`: what a checkpoint promises about records that are processed around it."""

from __future__ import annotations

from enum import Enum

from penstock.runtime.misspelt_names import NearestEnumMembers


class CheckpointingMode(Enum, metaclass=NearestEnumMembers):
    """The promise that a checkpoint keeps when a job is restored from it.

    Example:
        >>> CheckpointingMode("exactly_once").name
        'EXACTLY_ONCE'
    """

    #: Every record has an effect on state exactly once. Channels wait for each other at barriers.
    EXACTLY_ONCE = "exactly_once"
    #: No record is lost; some may count twice after a restore. No channel ever waits.
    AT_LEAST_ONCE = "at_least_once"
