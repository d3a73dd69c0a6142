from __future__ import annotations

import bz2
import gzip
import lzma
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock import BadRecordError, ConnectorError, FileSource
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import UnreadableInputError
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit
from penstock.runtime.io.connectors.filesystem import InputFile
from penstock.runtime.io.connectors.local_files import LocalFileSystem
from penstock.runtime.record.value_codec import ValueCodec


def test_lines_of_several_files_are_read_in_the_order_of_their_paths(tmp_path, read_all):
    (tmp_path / "b.txt").write_text("three\nfour")
    (tmp_path / "a.txt").write_text("one\n\ntwo\n")
    assert read_all(FileSource.text(f"{tmp_path}/*.txt")).rows == ["one", "", "two", "three", "four"]


def test_windows_line_ends_and_a_byte_order_mark_are_not_part_of_a_line(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfone\r\ntwo\rhalf\r\n\r\nlast")
    for split_size in range(1, 30):
        assert read_all(FileSource.text(path, split_size=split_size)).rows == ["one", "two\rhalf", "", "last"]


def test_a_carriage_return_at_the_end_of_a_file_is_text_wherever_it_is_cut(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n\xff\r\nlast\r")
    for split_size in range(1, 20):
        for max_rows in (1, 100):
            back = read_all(FileSource.text(path, split_size=split_size, on_error="dead_letter"), max_rows)
            assert back.rows == ["one", "last\r"]
            assert [letter.record for letter in back.dead_letters] == [b"\xff"]


def test_only_newlines_separate_lines(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_text("a\x0bb\x0cc\u2028d\x85e\nf\n", newline="")
    assert read_all(FileSource.text(path)).rows == ["a\x0bb\x0cc\u2028d\x85e", "f"]


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf", b"\n", b"\xef\xbb\xbf\n"])
def test_nearly_empty_files_give_what_is_in_them(tmp_path, read_all, content):
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    assert read_all(FileSource.text(path)).rows == [""] * content.count(b"\n")


def test_a_line_much_longer_than_a_range_and_a_block_belongs_to_one_range(tmp_path, read_all):
    path = tmp_path / "a.txt"
    long = "é" * 700_000
    path.write_text(f"x\n{long}\ny\n")
    source = FileSource.text(path, split_size=50_000)
    assert len(source.splits(1)) > 20
    assert read_all(source).rows == ["x", long, "y"]


def test_other_encodings_are_decoded(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes("grün\nweiß\n".encode("latin-1"))
    assert read_all(FileSource.text(path, encoding="latin-1")).rows == ["grün", "weiß"]
    with pytest.raises(ConfigurationError, match="convert the files to UTF-8"):
        FileSource.text(path, encoding="cp037")
    with pytest.raises(ConfigurationError, match="not an encoding"):
        FileSource.text(path, encoding="utf-nine")


SOURCES: list[tuple[Any, str, list[Any]]] = [
    (FileSource.text, "ä 😀\r\nb\n", ["ä 😀", "b"]),
    (FileSource.json, '{"k": "ä 😀"}\n{"k": "b"}\n', [{"k": "ä 😀"}, {"k": "b"}]),
    (
        partial(FileSource.json, batch_format="arrow"),
        '{"k": "ä 😀"}\n{"k": "b"}\n',
        [{"k": "ä 😀"}, {"k": "b"}],
    ),
    (FileSource.csv, 'k,v\nä 😀,"1\n2"\nb,3\n', [{"k": "ä 😀", "v": "1\n2"}, {"k": "b", "v": "3"}]),
    (
        partial(FileSource.csv, schema="infer"),
        "k,v\rä 😀,1\rb,3\r",
        [{"k": "ä 😀", "v": 1}, {"k": "b", "v": 3}],
    ),
]


@pytest.mark.parametrize("pack", [None, gzip])
@pytest.mark.parametrize(("source", "text", "rows"), SOURCES)
@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32", "utf-32-le"])
def test_every_format_reads_utf_16_and_utf_32(tmp_path, read_all, encoding, source, text, rows, pack):
    path = tmp_path / ("a.txt" if pack is None else "a.txt.gz")
    content = text.encode(encoding)
    path.write_bytes(content if pack is None else pack.compress(content))
    reading = source(path, encoding=encoding)
    assert len(reading.splits(4)) == 1
    assert read_all(reading).rows == rows
    assert read_all(reading, max_rows=1, restore_every=2).rows == rows


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_a_byte_order_mark_is_named_where_the_file_is_read_in_another_encoding(tmp_path, read_all, encoding):
    path = tmp_path / "a.txt"
    path.write_bytes("a\n".encode(encoding))
    with pytest.raises(
        UnreadableInputError, match=f"{path} begins with the byte order mark .*encoding='{encoding}'"
    ):
        read_all(FileSource.text(path, on_error="skip"))
    with pytest.raises(UnreadableInputError, match=f"{path} begins with .*encoding='{encoding}'"):
        read_all(FileSource.text(path, encoding=f"{encoding}-be"))
    path.write_bytes("a\n".encode(f"{encoding}-le"))
    with pytest.raises(UnreadableInputError, match=f"no byte order mark.*encoding='{encoding}-le'"):
        read_all(FileSource.text(path, encoding=encoding))


@pytest.mark.parametrize(
    ("encoding", "bad"), [("utf-16-le", b"x\xd8"), ("utf-16-le", b"x\xdc"), ("utf-32-le", b"\0\0\x11\0")]
)
def test_what_is_no_text_in_a_recoded_file_is_one_bad_record(tmp_path, read_all, encoding, bad):
    path = tmp_path / "a.txt"
    path.write_bytes("a\nb".encode(encoding) + bad + "c\nd\n".encode(encoding))
    assert read_all(FileSource.text(path, encoding=encoding, on_error="skip")).rows == ["a", "d"]
    path.write_bytes("a\nb".encode(encoding) + b"c")
    assert read_all(FileSource.text(path, encoding=encoding, on_error="skip")).rows == ["a"]


@pytest.mark.parametrize(("ending", "pack"), [("gz", gzip), ("bz2", bz2), ("xz", lzma)])
def test_a_compressed_file_is_one_split_and_restores_to_the_next_line(tmp_path, read_all, ending, pack):
    lines = [f"line {i}" for i in range(20_000)]
    path = tmp_path / f"a.txt.{ending}"
    path.write_bytes(pack.compress("\n".join(lines).encode()))
    source = FileSource.text(path, split_size=10)
    assert len(source.splits(4)) == 1
    assert read_all(source).rows == lines
    assert read_all(source, max_rows=1500, restore_every=2).rows == lines


def test_a_long_way_into_a_compressed_file_is_gone_in_several_polls(tmp_path, context, drain):
    path = tmp_path / "a.txt.gz"
    lines = ["x" * 999] * 12_000 + ["the last one"]
    path.write_bytes(gzip.compress("\n".join(lines).encode(), 1))
    source = FileSource.text(path)
    reader = source.reader(context(), [FileSplit(str(path), path.stat().st_size, 0, 1 << 62, None)])
    drain(reader, 1000, stop_after=11_900)
    (split,) = reader.snapshot()
    reader.close()
    reader = source.reader(context(), [FileSplit(split.path, split.size, 0, (1 << 63) - 1, split.position)])
    first = reader.poll(1000)
    assert first.batch is None
    assert not first.finished
    assert first.ready_at == 1000.0
    assert drain(reader).rows == lines[split.position // 1000 :]


@pytest.mark.parametrize(
    "source",
    [
        FileSource.text,
        FileSource.json,
        FileSource.csv,
        partial(FileSource.csv, schema="infer"),
        partial(FileSource.csv, header=False, columns=["a"], schema={"a": pa.string()}),
    ],
)
def test_a_cut_off_compressed_file_is_an_error_that_names_it(tmp_path, read_all, source):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(os.urandom(5000).hex().encode())[:-2000])
    with pytest.raises(ConnectorError, match=r"a\.txt\.gz is damaged"):
        read_all(source(path))


def test_a_bad_line_fails_the_source_with_file_line_and_text(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nb\xffd\ngood\n")
    with pytest.raises(
        BadRecordError, match=r"a\.txt, line 2 \(byte 5\): .*b'b\\xffd'.*on_error=\"skip\""
    ) as failure:
        read_all(FileSource.text(path))
    assert len(str(failure.value)) < 1000


def test_bad_lines_are_skipped_or_become_dead_letters_wherever_the_reader_is_restored(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\r\n" + b"b\xffd\r\n" + b"two\n" + b"\xc3\n" + b"three")
    for restore_every in (0, 1):
        skipping = read_all(FileSource.text(path, on_error="skip"), 1, restore_every)
        assert (skipping.rows, skipping.skipped, skipping.dead_letters) == (["one", "two", "three"], 2, [])
        letters = read_all(FileSource.text(path, on_error="dead_letter"), 1, restore_every)
        assert letters.rows == ["one", "two", "three"]
        assert [(each.record, each.origin) for each in letters.dead_letters] == [
            (b"b\xffd", f"{path}:5"),
            (b"\xc3", f"{path}:14"),
        ]


def test_a_file_that_changed_or_went_since_it_was_listed_is_refused(tmp_path, context):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    source = FileSource.text(path)
    splits = source.splits(1)
    path.write_text("one\n")
    with pytest.raises(ConnectorError, match="8 bytes then, 4 now"):
        source.reader(context(), splits).poll(1)
    path.unlink()
    with pytest.raises(ConnectorError, match=r"a\.txt is gone.*start a new job without it"):
        source.reader(context(), splits).poll(1)


def test_a_file_that_shrinks_while_it_is_read_is_refused(tmp_path, context, drain):
    path = tmp_path / "a.txt"
    path.write_text("0123456789\n" * 100_000)
    source = FileSource.text(path)
    reader = source.reader(context(), source.splits(1))
    reader.poll(10)
    path.write_text("")
    with pytest.raises(ConnectorError, match="has changed"):
        drain(reader)
    reader.close()


class WatchedFileSystem(LocalFileSystem):
    """The local disk, remembering every handle that it gave."""

    def __init__(self) -> None:
        self.handles: list[InputFile] = []

    def open_input(self, path: str) -> InputFile:
        self.handles.append(super().open_input(path))
        return self.handles[-1]

    def closed(self) -> list[bool]:
        return [handle.closed for handle in self.handles]  # type: ignore[attr-defined]


def test_no_file_handle_stays_open(tmp_path, read_all, context):
    (tmp_path / "a.txt").write_bytes(b"good\nb\xffd\n")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(b"x"))
    files = WatchedFileSystem()
    read_all(FileSource.text(tmp_path, on_error="skip", filesystem=files))
    assert files.closed() == [True, True]
    source = FileSource.text(f"{tmp_path}/a.txt", filesystem=files)
    reader = source.reader(context(), source.splits(1))
    with pytest.raises(BadRecordError):
        reader.poll(10)
    assert files.closed() == [True, True, False]
    reader.close()
    reader.close()
    assert files.closed() == [True, True, True]


def test_a_file_whose_reader_can_not_be_made_is_closed(tmp_path, read_all):
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(os.urandom(5000).hex().encode())[:-2000])
    files = WatchedFileSystem()
    with pytest.raises(ConnectorError, match="is damaged"):
        read_all(FileSource.csv(tmp_path, filesystem=files))
    assert files.closed() == [True]


def test_polls_give_about_as_many_lines_as_asked(tmp_path, read_all):
    path = tmp_path / "a.txt"
    path.write_text("x\n" * 100_000)
    back = read_all(FileSource.text(path), max_rows=100)
    assert len(back.rows) == 100_000
    assert back.largest <= 200


def test_ranges_are_small_enough_to_occupy_every_subtask(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("0123456789abcde\n" * 512 * 1024)
    splits = FileSource.text(path).splits(4)
    assert len(splits) == 4
    assert {split.end - split.start for split in splits} == {2 * 1024 * 1024}


def test_splits_survive_the_codec(tmp_path, context):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    source = FileSource.text(path)
    reader = source.reader(context(), source.splits(1))
    reader.poll(1)
    codec = ValueCodec(allow_pickle=False)
    snapshot = list(reader.snapshot())
    reader.close()
    assert codec.loads(codec.dumps(snapshot)) == snapshot


def test_what_is_skipped_is_counted_in_what_is_polled(tmp_path, context):
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\ntwo\n")
    (tmp_path / "b.txt").write_bytes(b"three\n")
    source = FileSource.text(tmp_path, on_error="skip")
    reader = source.reader(context(), source.splits(1))
    polls = []
    while not polls or not polls[-1].finished:
        polls.append(reader.poll(10))
    assert [row for polled in polls if polled.batch for row in polled.batch.rows] == ["one", "two", "three"]
    assert sum(polled.skipped for polled in polls) == 1
    assert list(reader.snapshot()) == []


def test_settings_that_are_not_allowed_are_named(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="on_error='ignore'"):
        FileSource.text(tmp_path, on_error="ignore")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="split_size=0"):
        FileSource.text(tmp_path, split_size=0)
    with pytest.raises(ConfigurationError, match="no location"):
        FileSource.text([])
    with pytest.raises(ConfigurationError, match=r"hdfs://.*use a local path or one of"):
        FileSource.text("hdfs://name/a.txt").splits(1)
    (tmp_path / "a.zst").write_text("x")
    with pytest.raises(ConfigurationError, match="decompress the file"):
        FileSource.text(tmp_path / "a.zst").splits(1)
