"""Names of actors are distinct, and show which actors are processes of jobs."""

from __future__ import annotations

from penstock.actors.shared.registry import is_process_name, master_name, process_name


def test_names_of_processes_are_told_from_others_and_from_each_other() -> None:
    assert is_process_name(process_name("9f04"))
    assert is_process_name(master_name("9f04"))
    assert not is_process_name("collector:9f04")
    assert process_name("9f04") != master_name("9f04")
