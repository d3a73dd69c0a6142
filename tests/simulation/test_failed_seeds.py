"""Seeds that have failed once. A seed stays the same run only as long as the code that draws from it stays.

So each one stands here with what it found; the bug itself is held by a test beside the code that had it.
"""

from __future__ import annotations

import pytest
from deep import SEEDS
from simulated_jobs.simulation import describe_failure, run_seed

pytestmark = pytest.mark.simulation

#: An unaligned barrier came before its receiver was started, and was sent on to no receiver
#: (`test_frame_that_comes_before_the_subtask_is_started_waits_for_its_first_step`).
SENT_BEFORE_IT_WAS_STARTED = (96, 104, 287, 430, 548)

#: At least once with `end_of_partition="aborts"`: checkpoints waited for ended channels. Refused now.
WAITED_FOR_WHOEVER_HAD_LEFT = (87,)

#: A process that died in a commit while its subtask was opened (a bug of the simulation).
DIED_WHILE_IT_WAS_OPENED = (232, 368, 798)

#: A subtask at its end got a checkpoint whose hook had not been asked
#: (`test_whoever_reaches_the_end_of_its_data_during_the_start_is_told_with_the_sources`).
TOLD_BEFORE_THE_HOOKS = (0,)

#: A request that came twice kept a split behind one more checkpoint
#: (`test_split_behind_a_checkpoint_that_is_asked_for_twice_is_in_the_next_one`).
ASKED_FOR_TWICE = (144,)

#: A JobMaster that was believed to be dead handed a split out (a bug of the simulation).
BELIEVED_TO_BE_DEAD = (1417,)

#: A region alone started from an older checkpoint because the newest one was damaged
#: (`test_the_whole_job_starts_from_the_older_checkpoint`).
REGION_WENT_BACK_FURTHER = (1099, 2922)

#: A job restarted for ever from a damaged snapshot that its user had named
#: (`test_a_named_snapshot_that_turns_out_to_be_damaged_fails_the_job_whatever_older_ones_are_allowed`).
TOOK_THE_SAME_SNAPSHOT_AGAIN = (1207,)

#: A JobMaster that is past, and does not know it, found files deleted (a bug of the simulation).
READ_WHAT_LATER_ATTEMPTS_HAVE_DELETED = (2283,)

#: What was damaged in a savepoint that its user had moved counted as a bug (a bug of the simulation).
DAMAGED_AND_THEN_MOVED = (14025,)

#: A JobMaster that was past got no id for its checkpoints, and stayed
#: (`test_a_job_master_that_gets_no_id_because_it_is_past_leaves`).
STAYED_ALTHOUGH_IT_WAS_PAST = (15565,)

#: No JobMaster followed one that a guard had killed: an earlier one lived on (a bug of the simulation).
HAD_NO_SUCCESSOR = (17646,)

#: The JobMaster that knew why the job ended had died (a bug of the simulation).
NOBODY_KNEW_THE_REASON = (61462,)

#: A bit was to flip in a file that an earlier fault had taken (a bug of the simulation).
DAMAGED_AND_GONE = (106413,)

#: Checkpoints had to copy a damaged file of a finished subtask, and the job restarted for ever
#: (`test_damaged_state_of_a_finished_source_is_found_at_the_restart_if_checkpoints_must_copy_it`).
COPIED_DAMAGE_AGAIN_AND_AGAIN = (216451,)

#: They had to copy one all the time, and the job was to tolerate any number of failed checkpoints
#: (`test_damaged_state_that_all_checkpoints_have_to_copy_fails_the_attempt_whatever_is_tolerated`).
TOLERATED_DAMAGE_FOR_EVER = (404316,)

#: A JobMaster that counted as dead began an attempt; the other one left, and the job had none
#: (`test_an_attempt_of_a_lost_process_takes_no_job_away_from_its_job_master`).
BOTH_JOB_MASTERS_LEFT = (220116,)

#: A job failed without a word of the damaged record that its checkpoint had been in
#: (`test_a_job_whose_newest_checkpoint_only_a_damaged_record_knew_says_so`).
DID_NOT_NAME_THE_LOST_RECORD = (232108,)

#: Two timers of processing time had one moment, and one of them was deleted (a bug of the simulation).
DELETED_ONE_OF_TWO_TIMERS = (231249, 236269)

#: A sender that had drained held event time back no longer, and state expired (a bug of the oracle).
EXPIRED_BY_A_DRAIN = (42690,)

#: Jobs waited for a moment, and their checkpoints used up the moves of a job that stands still (a bug of the
#: simulation).
WAITED_FOR_A_MOMENT = (255759, 501420)

#: A barrier overtook where two ways part and meet again, and its checkpoint waited for itself
#: (`test_no_checkpoint_waits_for_itself`).
WAITED_FOR_ITSELF = (606628,)

#: The only compaction and the hint were damaged, and the error named neither
#: (`test_damage_of_the_only_compaction_and_of_the_hint_is_named`).
DID_NOT_NAME_THE_COMPACTION = (907539,)

#: A second job was stopped, and no third one went on with what it had left (a bug of the simulation).
STOPPED_THE_SECOND_JOB = (646104, 655774, 681694)

#: Processes whose clocks differ did not agree on when a value expires (a bug of the simulation).
CLOCKS_DISAGREED = (251050,)


#: A cancelled job committed after its user had taken the world outside back to an older checkpoint (a bug of
#: the simulation).
COMMITTED_INTO_THE_OLD_WORLD = (9101773,)

FAILED = [
    *SENT_BEFORE_IT_WAS_STARTED,
    *WAITED_FOR_WHOEVER_HAD_LEFT,
    *DIED_WHILE_IT_WAS_OPENED,
    *TOLD_BEFORE_THE_HOOKS,
    *ASKED_FOR_TWICE,
    *BELIEVED_TO_BE_DEAD,
    *REGION_WENT_BACK_FURTHER,
    *TOOK_THE_SAME_SNAPSHOT_AGAIN,
    *READ_WHAT_LATER_ATTEMPTS_HAVE_DELETED,
    *DAMAGED_AND_THEN_MOVED,
    *STAYED_ALTHOUGH_IT_WAS_PAST,
    *HAD_NO_SUCCESSOR,
    *NOBODY_KNEW_THE_REASON,
    *DAMAGED_AND_GONE,
    *COPIED_DAMAGE_AGAIN_AND_AGAIN,
    *TOLERATED_DAMAGE_FOR_EVER,
    *BOTH_JOB_MASTERS_LEFT,
    *DID_NOT_NAME_THE_LOST_RECORD,
    *DELETED_ONE_OF_TWO_TIMERS,
    *EXPIRED_BY_A_DRAIN,
    *WAITED_FOR_A_MOMENT,
    *STOPPED_THE_SECOND_JOB,
    *WAITED_FOR_ITSELF,
    *DID_NOT_NAME_THE_COMPACTION,
    *CLOCKS_DISAGREED,
    *COMMITTED_INTO_THE_OLD_WORLD,
]


# `test_seeds.py` runs the others.
@pytest.mark.parametrize("seed", [seed for seed in FAILED if seed >= SEEDS])
def test_seed_that_failed_once_passes(seed: int) -> None:
    result = run_seed(seed)
    assert result.passed, "\n".join(describe_failure(result))
