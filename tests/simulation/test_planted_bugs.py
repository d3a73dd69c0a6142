"""Bugs that are planted on purpose are found; see docs/proofs.md for after how many seeds."""

from __future__ import annotations

from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Final

import pytest
from deep import SEEDS
from planted_bugs import (
    PLANTED,
    Plant,
    answer_before_names_are_synced,
    believe_state_without_its_checksum,
    capture_no_input,
    capture_no_output,
    capture_what_is_behind_the_barrier,
    commit_what_the_checkpoint_does_not_cover,
    commit_with_the_snapshot,
    commit_without_a_record,
    count_a_barrier_twice,
    count_an_acknowledgement_twice,
    deal_key_groups_out_by_the_old_parallelism,
    delete_before_the_compaction_is_written,
    delete_files_that_newer_checkpoints_share,
    drop_a_buffer_on_release,
    drop_transactions_of_aborted_checkpoints,
    end_without_the_failure,
    end_without_the_savepoint_of_a_stop,
    fence_no_attempt,
    fire_windows_when_the_job_stops,
    follow_the_fastest_watermark,
    forget_checkpoints_that_are_compacted,
    forget_lists_of_subtasks_that_are_gone,
    forget_restored_transactions,
    forget_when_restored_windows_end,
    give_data_in_flight_to_the_old_receiver,
    give_no_splits_back,
    give_splits_back_that_a_checkpoint_covers,
    hear_old_attempts,
    leave_the_valve_open,
    leave_with_any_checkpoint,
    let_new_input_pass_what_is_stored,
    let_no_lease_end,
    miss_files_that_a_listing_does_not_show,
    name_files_before_their_content_is_synced,
    pass_over_damage_that_nobody_allows,
    remove_leftovers_before_all_are_open,
    restore_hooks_as_if_there_were_no_state,
    reuse_checkpoint_ids,
    send_events_past_triggers,
    sort_checkpoints_by_name,
    take_events_twice,
    take_frames_as_they_come,
    take_frames_of_other_attempts,
    take_no_older_checkpoint,
    wait_for_receivers_that_are_gone,
)
from planted_time_bugs import (
    PLANTED_IN_TIME,
    bring_merged_windows_back,
    fire_timers_that_were_deleted_before_a_restore,
    forget_restored_timers_of_processing_time,
    let_restored_state_begin_its_life_again,
    restored_splits_are_never_idle,
    wait_for_idle_channels,
    wait_for_splits_of_subtasks_that_are_gone,
)
from simulated_jobs.simulation import SimulationResult, run_seed

pytestmark = [pytest.mark.simulation, pytest.mark.timeout(3000)]

#: No bug may hide from more runs, ...
MOST_RUNS: Final = 1000

#: ... and the middle one not from so many.
MIDDLE: Final = 100

#: The first seed that finds each bug (docs/proofs.md); `--run-long` looks for all of them again.
FOUND_BY: Final[dict[Plant, int]] = {
    count_a_barrier_twice: 1,
    drop_a_buffer_on_release: 4,
    capture_no_output: 8,
    commit_without_a_record: 8,
    fence_no_attempt: 49,
    leave_the_valve_open: 80,
    give_no_splits_back: 22,
    deal_key_groups_out_by_the_old_parallelism: 68,
    restore_hooks_as_if_there_were_no_state: 1,
    forget_when_restored_windows_end: 5,
    let_no_lease_end: 0,
    take_frames_of_other_attempts: 174,
    send_events_past_triggers: 189,
    take_events_twice: 30,
    let_new_input_pass_what_is_stored: 263,
    capture_no_input: 18,
    capture_what_is_behind_the_barrier: 195,
    count_an_acknowledgement_twice: 8,
    hear_old_attempts: 7,
    reuse_checkpoint_ids: 4,
    sort_checkpoints_by_name: 257,
    delete_files_that_newer_checkpoints_share: 8,
    commit_what_the_checkpoint_does_not_cover: 59,
    commit_with_the_snapshot: 0,
    forget_restored_transactions: 8,
    remove_leftovers_before_all_are_open: 8,
    drop_transactions_of_aborted_checkpoints: 1,
    forget_lists_of_subtasks_that_are_gone: 1,
    give_data_in_flight_to_the_old_receiver: 68,
    take_frames_as_they_come: 4,
    give_splits_back_that_a_checkpoint_covers: 157,
    leave_with_any_checkpoint: 7,
    fire_windows_when_the_job_stops: 132,
    wait_for_receivers_that_are_gone: 537,
    follow_the_fastest_watermark: 18,
    answer_before_names_are_synced: 2,
    name_files_before_their_content_is_synced: 8,
    delete_before_the_compaction_is_written: 308,
    forget_checkpoints_that_are_compacted: 6,
    pass_over_damage_that_nobody_allows: 53,
    take_no_older_checkpoint: 182,
    believe_state_without_its_checksum: 571,
    miss_files_that_a_listing_does_not_show: 18,
    end_without_the_savepoint_of_a_stop: 1,
    end_without_the_failure: 10,
    bring_merged_windows_back: 385,
    fire_timers_that_were_deleted_before_a_restore: 26,
    forget_restored_timers_of_processing_time: 56,
    let_restored_state_begin_its_life_again: 698,
    wait_for_idle_channels: 115,
    restored_splits_are_never_idle: 195,
    wait_for_splits_of_subtasks_that_are_gone: 42,
}

#: With these a job stands still, which takes tens of thousands of moves to see.
STAND_STILL: Final = (
    give_data_in_flight_to_the_old_receiver,
    hear_old_attempts,
    reuse_checkpoint_ids,
    forget_restored_timers_of_processing_time,
    wait_for_idle_channels,
    restored_splits_are_never_idle,
    wait_for_splits_of_subtasks_that_are_gone,
)


def first_failure(*first: int) -> SimulationResult | None:
    """The first run that fails; `None` for none.

    Args:
        first: Seeds to run before those from 0 on.
    """
    seeds = islice(chain(first, range(MOST_RUNS)), MOST_RUNS)
    return next((result for result in map(run_seed, seeds) if not result.passed), None)


@pytest.mark.parametrize(
    "plant",
    [pytest.param(p, marks=pytest.mark.long if p in STAND_STILL else (), id=p.__name__) for p in FOUND_BY],
)
def test_planted_bug_is_found_by_its_seed(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    # The seed finds it until seeds mean other runs; then the others are tried.
    result = first_failure(FOUND_BY[plant])
    assert result is not None, f"not found in {MOST_RUNS} runs"
    misfit = result.problems[0].startswith(("TypeError", "AttributeError", "NameError"))
    assert not misfit, f"the bug does not fit the code any more: {result.problems[0]}"
    monkeypatch.undo()
    if result.seed >= SEEDS:  # the others are run without a planted bug in test_seeds.py
        assert run_seed(result.seed).passed, "the seed fails without the planted bug, too"
    print(f"{plant.__name__} was found by seed {result.seed}: {result.problems[0][:300]}")


@pytest.mark.long
def test_every_planted_bug_is_found_soon() -> None:
    found: dict[str, int | None] = {}
    for plant in (*PLANTED, *PLANTED_IN_TIME):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            result = first_failure()
        found[plant.__name__] = None if result is None else result.seed
        print(plant.__name__, found[plant.__name__])
    assert None not in found.values()
    assert median(seed for seed in found.values() if seed is not None) < MIDDLE
    assert found == {plant.__name__: seed for plant, seed in FOUND_BY.items()}, "seeds mean other runs now"


def test_thirty_bugs_and_more_are_planted() -> None:
    assert list(FOUND_BY) == [*PLANTED, *PLANTED_IN_TIME]
    assert len(FOUND_BY) >= 30
    assert max(FOUND_BY.values()) < MOST_RUNS
    assert median(FOUND_BY.values()) < MIDDLE


def test_the_guide_says_after_how_many_seeds_each_bug_was_found() -> None:
    guide = Path(__file__).parents[2] / "docs" / "proofs.md"
    _, _, section = guide.read_text(encoding="utf-8").partition("### Planted bugs")
    rows = [line.split("|") for line in section.partition("###")[0].splitlines() if line.startswith("| ")]
    said = [int(cells[2].split()[0].replace(",", "")) for cells in rows[2:]]
    assert said == [seed + 1 for seed in FOUND_BY.values()]
