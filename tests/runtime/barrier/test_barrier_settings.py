"""The barrier handler of a job, and settings that contradict each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from penstock.runtime.barrier.factory import (
    BarrierSettings,
    HandlerKind,
    channels_to_align,
    create_input_gate,
    select_handler,
)
from penstock.runtime.config.checkpointing import Checkpointing, CheckpointingMode
from penstock.runtime.config.job_config import AdvancedConfig, JobConfig, Semantics
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.execution_graph import InputChannelSpec
from penstock.runtime.graph.job_graph import Partitioner, Partitioning
from penstock.runtime.network.input_channel import InputChannel
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.elements import (
    CheckpointOptions,
    SnapshotKind,
)
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId
from penstock.runtime.testing.manual_time import ManualClock


@pytest.mark.parametrize(
    ("settings", "channels", "kind"),
    [
        (BarrierSettings(), 1, HandlerKind.SINGLE_CHANNEL_ALIGNER),
        (BarrierSettings(), 2, HandlerKind.ALIGNER),
        (BarrierSettings(stores=True), 2, HandlerKind.STORING),
        (BarrierSettings(stores=True), 1, HandlerKind.SINGLE_CHANNEL_ALIGNER),
        (BarrierSettings(unaligned=True), 1, HandlerKind.ALTERNATING),
        (BarrierSettings(unaligned=True, has_aligned_timeout=True), 2, HandlerKind.ALTERNATING_WITH_TIMEOUT),
        (BarrierSettings(CheckpointingMode.AT_LEAST_ONCE), 1, HandlerKind.SINGLE_CHANNEL_TRACKER),
        (BarrierSettings(CheckpointingMode.AT_LEAST_ONCE), 2, HandlerKind.TRACKER),
    ],
)
def test_handler_is_chosen(settings: BarrierSettings, channels: int, kind: HandlerKind) -> None:
    assert select_handler(settings, channels) is kind


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        (BarrierSettings(CheckpointingMode.AT_LEAST_ONCE, unaligned=True), "blocks no channel"),
        (BarrierSettings(unaligned=True, stores=True), "needs aligned checkpoints"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: BarrierSettings, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        select_handler(settings, 2)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mode": "at_least_once", "unaligned": True}, "at least once never waits"),
        ({"max_concurrent": 2, "unaligned": True}, "use max_concurrent=1"),
        ({"aligned_timeout": 5}, "without unaligned=True"),
        ({"aligned_timeout": -1, "unaligned": True}, "aligned_timeout=-1"),
        ({"max_alignment_bytes": -1}, "max_alignment_bytes=-1"),
        ({"unaligned": 1}, "give True or False"),
        ({"alignment": "keep"}, "alignment='keep'.*'hold'.*'store'"),
        ({"alignment": "store", "unaligned": True}, "unaligned=True: unaligned barriers overtake data"),
        ({"alignment": "store", "unaligned": True, "aligned_timeout": 5}, "and aligned_timeout=5"),
        ({"alignment": "store", "mode": "at_least_once"}, "at least once blocks no channel"),
        ({"max_alignment_bytes": 10}, "max_alignment_bytes=10 without alignment='store'"),
    ],
)
def test_settings_of_a_job_that_contradict_each_other_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigurationError, match=why):
        Checkpointing(every=10, **changes)


def test_memory_for_stored_alignments_needs_an_alignment_that_stores() -> None:
    advanced = AdvancedConfig(alignment_memory=10)
    with pytest.raises(ConfigurationError, match="alignment_memory=10 without alignment='store'"):
        JobConfig(checkpointing=Checkpointing(every=10), advanced=advanced)
    config = JobConfig(checkpointing=Checkpointing(every=10, alignment="store"), advanced=advanced)
    assert replace(config, checkpointing=None).advanced == advanced


def test_settings_follow_those_of_the_job() -> None:
    counts, aborts = Semantics.current(), Semantics.flink_1_11()
    of_job = BarrierSettings.of_job
    assert of_job(None, aborts) == BarrierSettings(semantics=aborts)
    plain = Checkpointing(every=10, mode="at_least_once")
    assert of_job(plain, counts) == BarrierSettings(CheckpointingMode.AT_LEAST_ONCE)
    assert of_job(Checkpointing(every=10, alignment="store"), aborts) == BarrierSettings(
        stores=True, semantics=aborts
    )
    later = Checkpointing(every=10, unaligned=True, aligned_timeout=3)
    assert of_job(later, aborts) == BarrierSettings(
        unaligned=True, has_aligned_timeout=True, semantics=aborts
    )
    assert not of_job(Checkpointing(every=10, unaligned=True), counts).has_aligned_timeout


@pytest.mark.parametrize(
    ("settings", "needs"),
    [(BarrierSettings(unaligned=True), "capture"), (BarrierSettings(stores=True), "storage")],
)
def test_input_that_lacks_what_its_handler_needs_is_not_made(settings: BarrierSettings, needs: str) -> None:
    clock = ManualClock()
    gate = InputGate(InputChannel(index, clock) for index in range(2))
    with pytest.raises(ValueError, match=f"{needs} is needed for the barrier handler"):
        create_input_gate(settings, gate, clock)


def test_options_of_a_barrier_follow_the_settings() -> None:
    plain = Checkpointing(every=10)
    at_once = Checkpointing(every=10, unaligned=True)
    later = Checkpointing(every=10, unaligned=True, aligned_timeout=3)
    kind = SnapshotKind.CHECKPOINT
    assert plain.options(kind) == CheckpointOptions()
    assert at_once.options(kind) == CheckpointOptions(unaligned=True)
    assert later.options(kind) == CheckpointOptions(aligned_timeout=3.0)
    assert Checkpointing(every=10, unaligned=True, aligned_timeout=0).options(kind).unaligned
    assert later.options(SnapshotKind.SAVEPOINT) == CheckpointOptions(SnapshotKind.SAVEPOINT)


def test_channels_of_edges_that_cannot_be_dealt_out_anew_are_aligned() -> None:
    kinds = [Partitioning.KEY_GROUP, Partitioning.FORWARD, Partitioning.REBALANCE, Partitioning.BROADCAST]
    sender, edge = SubtaskId("map", 0), EdgeId("map", None, "count")
    specs = [InputChannelSpec(i, i, sender, edge, Partitioner(kind)) for i, kind in enumerate(kinds)]
    assert channels_to_align(specs) == {1, 3}
