from __future__ import annotations

import pytest

from penstock.actors.shared.log_names import JOB_MASTER, log_file_name, log_file_pattern
from penstock.actors.shared.names import job_of_master, master_name, process_name, process_of, process_prefix
from penstock.runtime.errors import ConfigurationError


def test_names_of_other_jobs_and_other_actors_are_not_matched() -> None:
    name = process_name("job-11", "9f04")
    assert process_of("job-11", name) == "9f04"
    assert process_of("job-1", name) is None
    assert not name.startswith(process_prefix("job-1"))
    assert process_of("job-1", master_name("job-1")) is None
    assert job_of_master(name) is None


def test_a_job_is_found_by_the_name_of_its_master() -> None:
    assert job_of_master(master_name("words-1a2b")) == "words-1a2b"


def test_every_subtask_has_a_log_file_of_its_own() -> None:
    names = {
        log_file_name("job-1", vertex, index, incarnation)
        for vertex in ("a", "A", "a@0", "a/0", JOB_MASTER)
        for index in (0, 1, None)
        for incarnation in ("1", "2")
    }
    # The JobMaster has no vertex, so what stands there says nothing.
    assert len(names) == 5 * 2 * 2 + 2
    assert all("/" not in name for name in names)


@pytest.mark.parametrize("job_id", ["../../etc", "*", "", "a/b"])
def test_a_pattern_needs_the_id_of_a_job(job_id: str) -> None:
    with pytest.raises(ConfigurationError):
        log_file_pattern(job_id)
