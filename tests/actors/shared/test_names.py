"""Names of actors can be told apart and taken apart."""

from __future__ import annotations

from penstock.actors.shared.names import job_of_master, master_name, process_name, process_of


def test_an_actors_name_is_that_of_a_process_or_of_a_job_master_and_never_both() -> None:
    for name in (process_name("9f04"), master_name("job-1"), "collector:7"):
        assert sum(found is not None for found in (process_of(name), job_of_master(name))) <= 1
    assert process_of(process_name("9f04")) == "9f04"
    assert job_of_master(master_name("job-1")) == "job-1"
