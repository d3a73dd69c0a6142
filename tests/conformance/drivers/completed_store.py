"""Replays the suite `completed_store` against `CompletedCheckpointStore`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.config.checkpointing import KeepAfter
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle

SUITES = ("completed_store",)

KEPT = {
    None: KeepAfter.NEVER,
    "retain_on_failure": KeepAfter.FAILURE,
    "retain_on_cancellation": KeepAfter.FAILURE_OR_CANCELLATION,
}

#: Job states are spelt as in Flink there.
JOB_STATES = {"finished": "finished", "canceled": "cancelled", "failed": "failed", "suspended": "suspended"}


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    try:
        store = CompletedCheckpointStore(case["config"]["retained"], semantics=Semantics.flink_1_11())
    except ConfigurationError as error:
        return [] if case.get("create_error") == "illegal_argument" else [str(error)]
    if "create_error" in case:
        return ["the store could be built"]
    return [
        f"op {number}: {difference}"
        for number, op in enumerate(case["ops"])
        for difference in differences(op["expect"], run(store, op))
    ]


def run(store: CompletedCheckpointStore, op: dict[str, Any]) -> dict[str, Any]:
    """Do one step; all that can be observed."""
    discarded: Iterable[FileHandle] = ()
    seen: dict[str, Any] = {}
    match op["op"]:
        case "add":
            checkpoint = completed(op["checkpoint"], op.get("type", "checkpoint"))
            discarded = store.add(checkpoint, keep_after=KEPT[op.get("retention")])
        case "latest":
            preferred = store.latest_checkpoint if op.get("prefer_checkpoint", False) else None
            newest = preferred or store.latest
            seen["latest"] = None if newest is None else newest.checkpoint_id
        case "shutdown":
            discarded = store.shutdown(JOB_STATES[op["job_status"]], KeepAfter.ALWAYS)
    seen["discard"] = sorted(int(handle.path) for handle in discarded)
    seen["all"] = [c.checkpoint_id for c in store.all]
    return seen


def differences(expected: dict[str, Any], seen: dict[str, Any]) -> list[str]:
    """The keys in which a step differs; a discard that is not expected must not happen."""
    expected = {"discard": [], **expected}
    return [f"{key} is {seen[key]}, not {value}" for key, value in expected.items() if seen[key] != value]


def completed(checkpoint_id: int, kind: str) -> CompletedCheckpoint:
    """A checkpoint whose only file is called like its id."""
    metadata = FileHandle(str(checkpoint_id), 1, "")
    return CompletedCheckpoint(checkpoint_id, 1, SnapshotKind(kind), {}, 0.0, 0.0, metadata)
