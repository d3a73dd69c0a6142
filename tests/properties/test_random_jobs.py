"""Whole jobs under random interleavings, checkpoints and crashes: every effect of every record exactly once.

Each case is a small graph, settings with tight buffers, and a history. A seeded generator chooses the moves:
which subtask steps, and which frame arrives (late, twice or before others). Checkpoints, failed writes and
crashes come in between. A reduce that concatenates records makes everything visible. The values committed for
a key must be growing prefixes of one sequence, each length exactly once. That sequence must have each
expected record once.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st
from job_histories import (
    History,
    Shape,
    check_order,
    check_output,
    configs,
    happenings,
    parallelisms,
    run,
    sequence_of,
    shapes,
    state_files_in,
)

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import JobConfig


@settings(max_examples=20 * DEEP, deadline=None)
@given(shapes, parallelisms, configs, happenings, st.integers(0, 2**32))
def test_every_record_has_its_effect_exactly_once_whatever_happens(
    shape: Shape,
    parallelism: list[int],
    config: JobConfig,
    happenings: list[tuple[int, str]],
    seed: int,
) -> None:
    history = History(shape, parallelism, config, Random(seed))
    run(history, happenings)
    check_output(history)


@pytest.mark.long
@settings(max_examples=5000, deadline=None)
@given(shapes, parallelisms, configs, happenings, st.integers(0, 2**32))
def test_every_record_has_its_effect_exactly_once_in_many_more_cases(
    shape: Shape,
    parallelism: list[int],
    config: JobConfig,
    happenings: list[tuple[int, str]],
    seed: int,
) -> None:
    history = History(shape, parallelism, config, Random(seed))
    run(history, happenings)
    check_output(history)


@settings(max_examples=10 * DEEP, deadline=None)
@given(shapes, st.integers(1, 3), parallelisms, configs, happenings, st.integers(0, 2**32))
def test_records_of_a_split_and_key_stay_in_order(
    shape: Shape,
    lanes: int,
    parallelism: list[int],
    config: JobConfig,
    happenings: list[tuple[int, str]],
    seed: int,
) -> None:
    history = History(shape, [lanes, lanes, *parallelism[2:]], config, Random(seed))
    history.job.crash()
    run(history, [(moves, what) for moves, what in happenings if what != "rescale"])
    check_order(history, lanes)


@settings(max_examples=10 * DEEP, deadline=None)
@given(shapes, parallelisms, configs, happenings, st.integers(0, 2**32))
def test_checkpoints_leave_no_files_behind(
    shape: Shape,
    parallelism: list[int],
    config: JobConfig,
    happenings: list[tuple[int, str]],
    seed: int,
) -> None:
    """A storage that refuses a deletion keeps its file: that is counted, and not tried here."""
    history = History(shape, parallelism, config, Random(seed), keeps_checkpoints=False)
    left_out = ("crash", "rescale", "storage")
    run(history, [(moves, what) for moves, what in happenings if what not in left_out])
    assert state_files_in(history.storage) == set()


@settings(max_examples=10 * DEEP, deadline=None)
@given(shapes, parallelisms, configs, st.integers(0, 2**32))
def test_job_without_checkpoints_ends_and_commits_once(
    shape: Shape, parallelism: list[int], config: JobConfig, seed: int
) -> None:
    history = History(shape, parallelism, replace(config, checkpointing=None), Random(seed))
    history.job.finish()
    expected: dict[int, int] = {}
    for key, _ in shape.items():
        expected[key] = expected.get(key, 0) + 1
    assert {key: len(sequence_of(v)) for key, v in history.target.by_key().items()} == expected


@settings(max_examples=10 * DEEP, deadline=None)
@given(shapes, parallelisms, configs, happenings, st.integers(0, 2**32))
def test_job_that_does_not_align_ends_and_loses_nothing(
    shape: Shape,
    parallelism: list[int],
    config: JobConfig,
    happenings: list[tuple[int, str]],
    seed: int,
) -> None:
    config = replace(config, checkpointing=Checkpointing(every=1, mode="at_least_once"))
    history = History(shape, parallelism, config, Random(seed))
    run(history, happenings)
    seen = {item for values in history.target.by_key().values() for items in values for item in items}
    assert seen == {item for _, item in shape.items()}
