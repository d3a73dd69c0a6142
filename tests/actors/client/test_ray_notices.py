"""Ray's own notices: kept out of the program's output, written to its log and to the logs of its jobs."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from ray._private import state as ray_state
from ray._private import worker as ray_worker

from penstock.actors.client.logs import LogLine, LogReader, read_files
from penstock.actors.client.ray_notices import (
    NoticeFiles,
    notices_are_taken,
    take,
    take_notices_of_processes,
)
from penstock.actors.shared.output_capture import RAY, log_file_name, log_file_pattern

NOTICE = "A worker died or was killed while executing a task."


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NoticeFiles:
    context = SimpleNamespace(get_node_id=lambda: "0123456789")
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    return NoticeFiles(lambda: tmp_path)


class HereReader(LogReader):
    """Reads one folder instead of asking nodes."""

    def __init__(self, job_id: str, folder: Path) -> None:
        super().__init__(job_id)
        self.key = lambda: b""
        self._new_parts = lambda: iter(  # type: ignore[method-assign]
            read_files(log_file_pattern(job_id), self._read_to, folder)
        )


def lines_of(job_id: str, folder: Path) -> list[LogLine]:
    return HereReader(job_id, folder).read()


def test_a_notice_is_in_the_log_of_each_job_of_this_process(tmp_path: Path, files: NoticeFiles) -> None:
    files.follow("words-1")
    files.follow("words-2")
    files.add(NOTICE)
    for job in ("words-1", "words-2"):
        (line,) = lines_of(job, tmp_path)
        assert (line.vertex, line.subtask, line.stream, line.text) == (RAY, None, "log", NOTICE)
        assert str(line).endswith(f"ray | {NOTICE}")


def test_a_notice_of_several_lines_becomes_several_lines(tmp_path: Path, files: NoticeFiles) -> None:
    files.follow("words-1")
    files.add("first\nsecond\n")
    assert [line.text for line in lines_of("words-1", tmp_path)] == ["first", "second"]


def test_a_job_that_was_left_gets_no_more(tmp_path: Path, files: NoticeFiles) -> None:
    files.follow("words-1")
    files.add("while it ran")
    files.leave("words-1")
    files.leave("of another process")
    files.add("afterwards")
    assert [line.text for line in lines_of("words-1", tmp_path)] == ["while it ran"]


def test_jobs_without_notices_have_no_file(tmp_path: Path, files: NoticeFiles) -> None:
    files.follow("words-1")
    files.leave("words-1")
    assert list(tmp_path.iterdir()) == []


def test_only_the_newest_jobs_are_followed(tmp_path: Path, files: NoticeFiles) -> None:
    for number in range(20):
        files.follow(f"words-{number}")
    files.add(NOTICE)
    assert len(list(tmp_path.iterdir())) == 16
    assert lines_of("words-3", tmp_path) == []
    assert len(lines_of("words-4", tmp_path)) == 1


def test_a_job_whose_file_can_not_be_written_is_left_with_a_warning(
    tmp_path: Path, files: NoticeFiles, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / log_file_name("words-1", RAY, None, f"01234567-{os.getpid()}")).mkdir()
    files.follow("words-1")
    files.follow("words-2")
    files.add("first")
    files.add("second")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "`penstock logs words-1` shows no further notices of Ray" in caplog.text
    assert [line.text for line in lines_of("words-2", tmp_path)] == ["first", "second"]
    assert list(files._keys) == ["words-2"], "nothing is kept of a job that was left"


def test_a_notice_is_an_info_of_its_own_logger(files: NoticeFiles, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.ray")
    take(f"{NOTICE}\n", files)
    assert caplog.record_tuples == [("penstock.ray", logging.INFO, NOTICE)]


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace Ray's listener and its printing; the listener prints one notice and ends."""

    def listen(worker: str, stopped: threading.Event) -> None:
        stopped.wait()
        data = {"lines": [worker], "pid": "raylet", "is_err": False}
        ray_worker.print_to_stdstream(data, ignore_prefix=False)

    def printing(data: dict[str, list[str]], ignore_prefix: bool) -> None:
        print(*data["lines"])

    monkeypatch.setattr(ray_worker, "listen_error_messages", listen)
    monkeypatch.setattr(ray_worker, "print_to_stdstream", printing)


def connect(notice: str, name: str = "ray_listen_error_messages") -> tuple[threading.Thread, threading.Event]:
    stopped = threading.Event()
    thread = threading.Thread(target=ray_worker.listen_error_messages, args=(notice, stopped), name=name)
    thread.start()
    return thread, stopped


@pytest.mark.usefixtures("listening")
def test_only_connections_that_penstock_makes_are_kept_quiet(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.ray")
    before = connect("of a user's connection before")
    with notices_are_taken(), notices_are_taken():
        ours = connect("of our connection")
    after = connect("of a user's connection after")
    for thread, stopped in (before, ours, after):
        stopped.set()
        thread.join()
    assert capsys.readouterr().out == "of a user's connection before\nof a user's connection after\n"
    assert caplog.messages == ["of our connection"]


def death(node: str, port: int, pid: int) -> str:
    """A notice as Ray words it."""
    where = f"Node ID: {node} Worker IP address: 192.0.2.2 Worker port: {port} Worker PID: {pid}"
    return f"{NOTICE} Lease ID: 02ab Worker ID: cc41 {where} Worker exit type: SYSTEM_ERROR"


def actor(name: str, node: str, port: int, pid: int) -> dict[str, object]:
    return {"Name": name, "Pid": pid, "Address": {"NodeID": node, "Port": port, "IPAddress": "192.0.2.2"}}


@pytest.mark.usefixtures("listening")
def test_on_a_users_connection_only_the_deaths_of_penstocks_processes_are_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    actors = [
        actor("process:9f04", "a1", 10, 100),
        actor("master:2a51", "a1", 0, 101),
        actor("", "a1", 12, 102),
    ]
    monkeypatch.setattr(ray_state, "actors", lambda: dict(enumerate(actors)))
    caplog.set_level(logging.INFO, "penstock.ray")
    ours = [death("a1", 10, 100), death("a1", 11, 101)]
    of_user = [
        death("a1", 12, 102),  # an actor of the user
        death("a1", 14, 104),  # a task
        death("b2", 10, 100),  # the same pid on another node
        death("a1", 13, 100),  # the same pid, reused after the end of Penstock's process
        "12 worker processes have been started",
    ]
    threads = [connect(notice) for notice in (*ours, *of_user)] + [connect(ours[0], "ray_print_logs")]
    take_notices_of_processes()
    for thread, stopped in threads:
        stopped.set()
        thread.join()
    assert capsys.readouterr().out.splitlines() == [*of_user, ours[0]]
    assert caplog.messages == ours


@pytest.mark.usefixtures("listening")
def test_a_notice_is_printed_when_nobody_says_whose_process_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def gone() -> None:
        raise ConnectionError("no GCS")

    monkeypatch.setattr(ray_state, "actors", gone)
    take_notices_of_processes()
    thread, stopped = connect(death("a1", 10, 100))
    stopped.set()
    thread.join()
    assert capsys.readouterr().out == death("a1", 10, 100) + "\n"


@pytest.mark.usefixtures("listening")
def test_who_asks_for_the_output_of_workers_gets_all_notices(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_state, "actors", lambda: {0: actor("process:9f04", "a1", 10, 100)})
    with notices_are_taken(False):
        thread, stopped = connect(death("a1", 10, 100))
    take_notices_of_processes()
    stopped.set()
    thread.join()
    assert capsys.readouterr().out == death("a1", 10, 100) + "\n"


def test_a_ray_that_prints_notices_in_another_way_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(ray_worker, "listen_error_messages")
    printing = ray_worker.print_to_stdstream
    with notices_are_taken():
        assert not hasattr(ray_worker, "listen_error_messages")
    take_notices_of_processes()
    assert ray_worker.print_to_stdstream is printing


def test_ray_has_the_functions_that_print_notices() -> None:
    assert callable(ray_worker.listen_error_messages)
    assert callable(ray_worker.print_to_stdstream)
