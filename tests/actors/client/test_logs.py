"""The output of actors: kept completely and in order, in bounded files that readers find."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.actors.client.logs import FilePart, LogLine, LogReader, read_files
from penstock.actors.command_line.app import _print_lines
from penstock.actors.shared.output_capture import (
    JOB_MASTER,
    LogFile,
    OutputCapture,
    _Tee,
    capture_output,
    log_file_name,
    log_file_pattern,
    sign,
)

JOB, KEY = "words-1", b"0123456789abcdef"
HEADER = {"job_id": JOB, "vertex": "count", "index": 0, "incarnation": "1", "node_id": "n", "pid": 1}


def path_of(folder: Path, vertex: str = "count", index: int | None = 0, incarnation: str = "1") -> Path:
    return folder / log_file_name(JOB, vertex, index, incarnation)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LogFile]:
    file = LogFile(path_of(tmp_path), HEADER)
    yield file
    file.close()


class HereReader(LogReader):
    """Reads one folder instead of asking nodes."""

    def __init__(self, folder: Path, *args: object) -> None:
        super().__init__(JOB, *args)  # type: ignore[arg-type]
        self._folder = folder
        self.key = lambda: b""

    def _new_parts(self) -> Iterator[FilePart]:
        yield from read_files(self._pattern, self._read_to, self._folder)


def texts(lines: list[LogLine]) -> list[str]:
    return [line.text for line in lines]


# -- writing ------------------------------------------------------------------------------------------------


def test_a_line_is_in_the_file_as_soon_as_it_ends(tmp_path: Path, file: LogFile) -> None:
    file.add("out", "hel")
    assert texts(HereReader(tmp_path).read()) == []
    file.add("out", "lo\nwor")
    assert texts(HereReader(tmp_path).read()) == ["hello"]
    file.flush()
    assert texts(HereReader(tmp_path).read()) == ["hello", "wor"]


def test_lines_have_time_subtask_and_stream(tmp_path: Path, file: LogFile) -> None:
    file.add("out", "a\n")
    file.add("err", "b\n")
    first, second = HereReader(tmp_path).read()
    assert (first.vertex, first.subtask, first.stream, first.text) == ("count", 0, "out", "a")
    assert second.stream == "err"
    assert first.at <= second.at
    assert str(first).endswith("count[0] | a")


def test_pieces_of_lines_of_several_threads_do_not_mix(tmp_path: Path, file: LogFile) -> None:
    started = threading.Barrier(4)

    def print_slowly(name: str) -> None:
        started.wait()
        for i in range(200):
            file.add("out", f"{name}")
            file.add("out", f"-{i}")
            file.add("out", "\n")

    threads = [threading.Thread(target=print_slowly, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(HereReader(tmp_path).read())
    for name in "abcd":
        assert [text for text in found if text.startswith(name)] == [f"{name}-{i}" for i in range(200)]


def test_a_job_that_prints_without_end_fills_two_files_and_no_more(tmp_path: Path) -> None:
    file = LogFile(path_of(tmp_path), HEADER, max_bytes=5_000)
    for i in range(2_000):
        file.add("out", f"line {i}\n")
    file.close()
    files = sorted(tmp_path.iterdir())
    assert len(files) == 2
    assert sum(f.stat().st_size for f in files) <= 10_000
    found = texts(HereReader(tmp_path).read())
    assert found[-1] == "line 1999"
    assert found == [f"line {i}" for i in range(2_000 - len(found), 2_000)]
    assert len(found) > 50


def test_a_line_without_end_is_written_in_pieces(tmp_path: Path, file: LogFile) -> None:
    for _ in range(30):
        file.add("out", "x" * 10_000)
    assert texts(HereReader(tmp_path).read())
    file.flush()
    assert "".join(texts(HereReader(tmp_path).read())) == "x" * 300_000


def test_an_actor_that_comes_back_goes_on_in_its_file(tmp_path: Path) -> None:
    for text in ("one\n", "two\n"):
        file = LogFile(path_of(tmp_path), HEADER)
        file.add("out", text)
        file.close()
    assert texts(HereReader(tmp_path).read()) == ["one", "two"]


@contextmanager
def redirected(file: LogFile) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Replace this process's two streams, as in an actor; return the text that Ray gets."""
    out, err = io.StringIO(), io.StringIO()
    root = logging.getLogger()
    before, level, streams = root.handlers[:], root.level, (sys.stdout, sys.stderr)
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    sys.stdout, sys.stderr = out, err
    OutputCapture(file)
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = streams
        root.handlers[:] = before
        root.setLevel(level)


def test_prints_and_logs_reach_the_file_and_ray(tmp_path: Path, file: LogFile) -> None:
    with redirected(file) as (out, err):
        print("printed")
        print("complained", file=sys.stderr)
        logging.getLogger("users.own").info("informed of %d", 7)
        logging.getLogger("users.own").debug("too much")
    lines = HereReader(tmp_path).read()
    assert [(line.stream, line.text) for line in lines] == [
        ("out", "printed"),
        ("err", "complained"),
        ("log", "INFO users.own: informed of 7"),
    ]
    assert out.getvalue() == "printed\n"
    assert err.getvalue() == "complained\nINFO users.own: informed of 7\n"


def test_rays_own_loggers_keep_to_their_own_files(tmp_path: Path, file: LogFile) -> None:
    ray_logger = logging.getLogger("ray")
    before = ray_logger.propagate
    with redirected(file):
        ray_logger.propagate = False  # as Ray has it in its workers
        ray_logger.warning("only for Ray")
    ray_logger.propagate = before
    assert HereReader(tmp_path).read() == []


def test_logging_that_a_user_sets_up_again_is_still_captured(tmp_path: Path, file: LogFile) -> None:
    with redirected(file):
        logging.basicConfig(force=True, format="mine %(message)s", level=logging.DEBUG)
        logging.getLogger("users.own").debug("detail")
    assert texts(HereReader(tmp_path).read()) == ["mine detail"]


def test_a_disk_that_refuses_the_file_does_not_stop_the_users_print(file: LogFile) -> None:
    file.close()
    with redirected(file) as (out, _):
        print("first")
        print("second")
    assert "first\n" in out.getvalue()
    assert "second\n" in out.getvalue()
    assert out.getvalue().count("`penstock logs` shows no further lines of this output") == 1


def test_output_after_the_release_is_in_no_file(tmp_path: Path, file: LogFile) -> None:
    out, streams = io.StringIO(), (sys.stdout, sys.stderr)
    sys.stdout = out
    try:
        capture = OutputCapture(file)
        print("mine")
        capture.release()
        print("another's")
    finally:
        sys.stdout, sys.stderr = streams
    assert texts(HereReader(tmp_path).read()) == ["mine"]
    assert out.getvalue() == "mine\nanother's\n"


def test_a_stream_that_a_library_has_kept_writes_to_the_file_of_the_role_that_it_serves_now(
    tmp_path: Path,
) -> None:
    for job in ("first", "second"):
        (tmp_path / job).mkdir()
    files = {job: LogFile(path_of(tmp_path / job), HEADER) for job in ("first", "second")}
    with redirected(files["first"]) as (out, _):
        kept = sys.stdout
        print("one", file=kept)
        capture = OutputCapture(files["first"])
        capture.release()
        print("between", file=kept)
        capture = OutputCapture(files["second"])
        print("two", file=kept)
        capture.release()
    assert {job: texts(HereReader(tmp_path / job).read()) for job in files} == {
        "first": ["one"],
        "second": ["two"],
    }
    assert out.getvalue() == "one\nbetween\ntwo\n"


def test_logging_that_a_user_sets_up_again_is_captured_once_in_the_next_role(
    tmp_path: Path, file: LogFile
) -> None:
    with redirected(file):
        logging.basicConfig(force=True, format="mine %(message)s", level=logging.INFO)
        OutputCapture(file)
        logging.getLogger("users.own").info("detail")
    assert texts(HereReader(tmp_path).read()) == ["mine detail"]


def test_nothing_is_captured_outside_of_an_actor() -> None:
    assert capture_output(JOB, "count", 0, KEY) is None
    assert capture_output(JOB, JOB_MASTER, None, KEY) is None
    assert not isinstance(sys.stdout, _Tee)


# -- reading ------------------------------------------------------------------------------------------------


def test_a_reader_gives_each_line_once(tmp_path: Path, file: LogFile) -> None:
    reader = HereReader(tmp_path)
    file.add("out", "one\n")
    assert texts(reader.read()) == ["one"]
    assert reader.read() == []
    file.add("out", "two\n")
    assert texts(reader.read()) == ["two"]


def test_a_reader_goes_on_in_the_next_file(tmp_path: Path) -> None:
    file = LogFile(path_of(tmp_path), HEADER, max_bytes=2_000)
    reader = HereReader(tmp_path)
    file.add("out", "x" * 1_500 + "\n")
    reader.read()
    file.add("out", "after\n" + "y" * 500 + "\n")
    file.close()
    assert texts(reader.read())[0] == "after"


def test_a_reader_gives_the_last_lines_of_a_file_that_was_replaced_since(tmp_path: Path) -> None:
    file = LogFile(path_of(tmp_path), HEADER, max_bytes=2_000)
    reader = HereReader(tmp_path)
    file.add("out", "x" * 1_500 + "\n")
    reader.read()
    file.add("out", "the last\n" + "y" * 500 + "\nthe next\n")
    assert texts(reader.read()) == ["the last", "y" * 500, "the next"]
    file.add("out", "more\n")
    file.close()
    assert texts(reader.read()) == ["more"]


def test_lines_of_all_subtasks_are_sorted_by_time(tmp_path: Path) -> None:
    files = [LogFile(path_of(tmp_path, index=i), {**HEADER, "index": i}) for i in range(3)]
    for i in range(9):
        files[i % 3].add("out", f"{i}\n")
    for file in files:
        file.close()
    assert texts(HereReader(tmp_path).read()) == [str(i) for i in range(9)]


def test_only_requested_lines_are_read(tmp_path: Path) -> None:
    for vertex, index in (("count", 0), ("count", 1), ("lines", 0)):
        file = LogFile(path_of(tmp_path, vertex, index), {**HEADER, "vertex": vertex, "index": index})
        file.add("out", f"{vertex}{index}\n")
        file.close()
    master = LogFile(path_of(tmp_path, JOB_MASTER, None), {**HEADER, "vertex": JOB_MASTER, "index": None})
    master.add("out", "master\n")
    master.close()
    assert texts(HereReader(tmp_path, ["count"]).read()) == ["count0", "count1"]
    assert texts(HereReader(tmp_path, ["count"], 1).read()) == ["count1"]
    assert texts(HereReader(tmp_path, None, 0).read()) == ["count0", "lines0"]
    assert texts(HereReader(tmp_path, [JOB_MASTER]).read()) == ["master"]
    assert len(HereReader(tmp_path).read()) == 4


def test_a_vertex_named_like_the_job_master_is_not_confused_with_it() -> None:
    assert log_file_name(JOB, JOB_MASTER, 0, "1") != log_file_name(JOB, JOB_MASTER, None, "1")


def test_a_file_whose_first_line_is_not_whole_yet_is_left_for_later(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    path.write_text(json.dumps(HEADER)[:20])
    reader = HereReader(tmp_path)
    assert reader.read() == []
    path.unlink()
    file = LogFile(path, HEADER)
    file.add("out", "hello\n")
    file.close()
    assert texts(reader.read()) == ["hello"]


# -- what others write --------------------------------------------------------------------------------------


class KeyedReader(HereReader):
    """Reads the lines of a job with a key."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.key = lambda: KEY


TEXTS = st.lists(
    st.text(max_size=20)
    | st.sampled_from(
        [
            "2026-01-01T00:00:00.000000Z out 0011223344556677 forged",
            json.dumps(HEADER),
            "a\rb",
            "\x85\u2028\x0b\x0c",
            "\udc80",
        ]
    ),
    max_size=6,
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(written=TEXTS, forged=TEXTS, appended=st.booleans())
def test_a_line_is_the_jobs_only_if_a_process_of_the_job_wrote_it(
    tmp_path_factory: pytest.TempPathFactory, written: list[str], forged: list[str], appended: bool
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    file = LogFile(path_of(folder), HEADER, key=KEY)
    for text in written:
        file.add("out", f"mine {text}\n")
    file.close()
    genuine = path_of(folder).read_bytes().split(b"\n", 1)[1]
    other = path_of(folder) if appended else path_of(folder, index=1)
    if not appended:
        other.write_text(json.dumps({**HEADER, "index": 1}) + "\n")
        with other.open("ab") as copied:
            copied.write(genuine)  # a line of another subtask does not count
    with other.open("a", encoding="utf-8", errors="surrogatepass") as stranger:
        for text in forged:
            stranger.write(f"2026-01-01T00:00:00.000000Z out {text}\n")
    stranger = LogFile(path_of(folder, incarnation="9"), {**HEADER, "incarnation": "9"}, key=b"guessed")
    stranger.add("out", "not mine\n")
    stranger.close()
    reader = KeyedReader(folder)
    lines = reader.read()
    expected = [line for text in written for line in f"mine {text}".split("\n")]
    assert [line.text for line in lines] == [
        line.rstrip("\r").encode("utf-8", "replace").decode() for line in expected
    ]
    assert {(line.vertex, line.subtask) for line in lines} <= {("count", 0)}
    assert reader.foreign_lines >= 1


def test_what_is_no_plain_file_is_not_waited_for_and_hides_no_line(tmp_path: Path) -> None:
    file = LogFile(path_of(tmp_path), HEADER)
    file.add("out", "hello\n")
    file.close()
    os.mkfifo(path_of(tmp_path, index=1))
    path_of(tmp_path, index=2).mkdir()
    path_of(tmp_path, index=3).symlink_to(path_of(tmp_path))
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as bound:
        bound.bind(path_of(tmp_path, index=4).name)
    headers = [
        "[]",
        "{}",
        "7",
        "[" * 50_000,
        "x" * 200_000,
        '{"vertex": ["count"], "index": 0, "incarnation": "1"}',
    ]
    for index, header in enumerate(headers, 5):
        path_of(tmp_path, index=index).write_text(header + "\n2026-01-01T00:00:00.000000Z out forged\n")
    # Names of invalid UTF-8, with matching headers.
    for fields in ({"vertex": "\udcff", "index": None}, {"incarnation": "\udcff"}):
        header = {**HEADER, **fields}
        path = tmp_path / log_file_name(JOB, header["vertex"], header["index"], header["incarnation"])
        path.write_text(json.dumps(header) + "\n2026-01-01T00:00:00.000000Z out 00 forged\n")
    path_of(tmp_path, index=20).write_text(json.dumps(HEADER) + "\n2026-01-01T00:00:00.000000Z out forged\n")
    reader = HereReader(tmp_path)
    assert texts(reader.read()) == ["hello"]


def test_a_job_without_a_key_has_written_no_line(tmp_path: Path, file: LogFile) -> None:
    file.add("out", "hello\n")
    reader = HereReader(tmp_path)
    reader.key = lambda: None
    assert reader.read() == []
    reader.key = lambda: b""
    assert texts(reader.read()) == ["hello"]


def test_files_of_other_jobs_are_not_touched(tmp_path: Path) -> None:
    (tmp_path / log_file_name("words-11", "count", 0, "1")).write_text("{}\nx out y\n")
    assert read_files(log_file_pattern(JOB), {}, tmp_path) == []


def test_invalid_utf_8_does_not_stop_the_reader(tmp_path: Path) -> None:
    path, at = path_of(tmp_path), b"2026-01-01T00:00:00.000000Z"
    signature = sign(b"", path.name, at, b"out", b"\xff\xfe")
    path.write_bytes(json.dumps(HEADER).encode() + b"\n%b out %b \xff\xfe\n" % (at, signature))
    assert texts(HereReader(tmp_path).read()) == ["\ufffd\ufffd"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can leave a file that another user can't read")
def test_a_file_of_another_user_is_told_and_hides_no_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs, ours = (
        LogFile(path_of(tmp_path), HEADER),
        LogFile(path_of(tmp_path, index=1), {**HEADER, "index": 1}),
    )
    theirs.add("out", "theirs\n")
    ours.add("out", "ours\n")
    os.chown(path_of(tmp_path, index=1), 65_534, 65_534)
    for above in (tmp_path, *tmp_path.parents):
        if above.is_relative_to(tempfile.gettempdir()) and above != Path(tempfile.gettempdir()):
            above.chmod(above.stat().st_mode | 0o055)
    reader = HereReader(tmp_path)
    os.seteuid(65_534)
    try:
        _print_lines(reader)
    finally:
        os.seteuid(0)
    said = capsys.readouterr()
    assert said.out.endswith("count[1] | ours\n")
    assert "theirs" not in said.out
    assert f"log files of another user skipped: 1, such as {path_of(tmp_path).name};" in said.err
    assert texts(reader.read()) == ["theirs"], "it is read as soon as it may be"
    assert reader.refused_files == ()
    theirs.close()
    ours.close()


def test_names_of_files_are_written_out_for_terminals(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class RefusedReader(HereReader):
        def _new_parts(self) -> Iterator[FilePart]:
            yield FilePart("penstock@words-1@\x1b[2J\udcff@.log", {}, b"", 0, is_refused=True)

    _print_lines(RefusedReader(tmp_path))
    assert r"penstock@words-1@\x1b[2J\udcff@.log; run this" in capsys.readouterr().err


def test_what_penstock_logs_has_no_secrets_and_what_users_log_stays(tmp_path: Path, file: LogFile) -> None:
    with redirected(file) as (_, err):
        try:
            raise ValueError("s3://me:wJalrXUtnFEMI@bucket is gone")
        except ValueError:
            logging.getLogger("penstock.actors").exception("no answer")
        logging.getLogger("penstocks").error("password=mine")
    lines = texts(HereReader(tmp_path).read())
    assert "wJalrXUtnFEMI" not in f"{lines} {err.getvalue()}"
    assert "ValueError: s3://***@bucket is gone" in lines
    assert "ERROR penstocks: password=mine" in lines
