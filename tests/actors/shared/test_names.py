"""Names of actors are distinct and can be parsed."""

from __future__ import annotations

from penstock.actors.shared.registry import master_name, process_name, process_of, process_of_master


def test_an_actors_name_is_that_of_a_subtasks_process_or_of_a_job_masters_and_never_both() -> None:
    for name in (process_name("9f04"), master_name("2a51"), "collector:7"):
        assert sum(found is not None for found in (process_of(name), process_of_master(name))) <= 1
    assert process_of(process_name("9f04")) == "9f04"
    assert process_of_master(master_name("2a51")) == "2a51"
