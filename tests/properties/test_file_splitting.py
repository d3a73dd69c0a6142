"""However a file is cut, polled and restored: its records come once each and in order."""

from __future__ import annotations

import csv
import io
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import FileSource
from penstock.runtime.operators.source import ConnectorContext


class StoppedClock:
    def now(self) -> float:
        return 0.0

    def monotonic(self) -> float:
        return 0.0


CONTEXT = ConnectorContext("job", "job", "read", 0, 1, 1, StoppedClock())

texts = st.text(st.sampled_from("ab \r\n\n\né€😀\u2028\x0b,\"'"), max_size=60)
sizes = st.integers(1, 40)


@pytest.fixture(scope="module")
def path() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        yield os.path.join(directory, "file")


def read(source: FileSource[Any], block_bytes: int, data: st.DataObject) -> list[Any]:
    """Read all splits with random polls, going over to a restored reader at random points."""
    source = replace(source, form=replace(source.form, block_bytes=block_bytes))  # type: ignore[type-var]
    rows: list[Any] = []
    reader = source.reader(CONTEXT, source.splits(1))
    while not (polled := reader.poll(data.draw(st.integers(1, 5)))).finished:
        rows.extend(() if polled.batch is None else polled.batch.rows)  # type: ignore[union-attr]
        if data.draw(st.booleans()):
            splits = reader.snapshot()
            reader.close()
            reader = source.reader(CONTEXT, splits)
    reader.close()
    return rows


@given(texts, sizes, sizes, st.data())
def test_lines_of_text(path, text, split_size, block_bytes, data):
    with open(path, "wb") as file:
        file.write(text.encode())
    lines = text.split("\n")
    expected = [line.removesuffix("\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    assert read(FileSource.text(path, split_size=split_size), block_bytes, data) == expected


@given(
    st.lists(st.one_of(texts, st.lists(st.integers(), max_size=3), st.none()), max_size=12),
    sizes,
    sizes,
    st.data(),
)
def test_values_of_json_lines(path, values, split_size, block_bytes, data):
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.writelines(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    assert read(FileSource.json(path, split_size=split_size), block_bytes, data) == values


@given(st.lists(st.tuples(texts, texts), max_size=10), sizes, st.booleans(), st.data())
def test_rows_of_csv(path, rows, block_bytes, header, data):
    text = io.StringIO(newline="")
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerows([("x", "y"), *rows] if header else rows)
    with open(path, "wb") as file:
        file.write(text.getvalue().encode())
    source = FileSource.csv(path, header=header, columns=["x", "y"])
    assert read(source, block_bytes, data) == [{"x": x, "y": y} for x, y in rows]


#: How files are stored that are recoded, and the encoding that a user names.
recoded = st.sampled_from(
    [
        *[
            (mark, name)
            for name in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
            for mark in ("", "\ufeff")
        ],
        ("\ufeff", "utf-16"),
        ("\ufeff", "utf-32"),
    ]
)


def write_recoded(path: str, text: str, stored: tuple[str, str], *, big: bool) -> None:
    mark, name = stored
    family = name if "-" in name[4:] else f"{name}-{'be' if big else 'le'}"
    with open(path, "wb") as file:
        file.write((mark + text).encode(family))


@given(texts, recoded, st.booleans(), sizes, sizes, st.data())
def test_lines_of_text_that_is_recoded(path, text, stored, big, split_size, block_bytes, data):
    write_recoded(path, text, stored, big=big)
    lines = text.split("\n")
    expected = [line.removesuffix("\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    source = FileSource.text(path, split_size=split_size, encoding=stored[1])
    assert read(source, block_bytes, data) == expected


@given(st.lists(st.tuples(texts, texts), max_size=8), recoded, st.booleans(), sizes, st.data())
def test_rows_of_files_that_are_recoded(path, rows, stored, big, block_bytes, data):
    text = io.StringIO(newline="")
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([("x", "y"), *rows])
    write_recoded(path, text.getvalue(), stored, big=big)
    expected = [{"x": x, "y": y} for x, y in rows]
    assert read(FileSource.csv(path, encoding=stored[1]), block_bytes, data) == expected
    write_recoded(path, "".join(json.dumps(row) + "\n" for row in expected), stored, big=big)
    assert read(FileSource.json(path, encoding=stored[1]), block_bytes, data) == expected


@given(
    st.text(st.sampled_from("a\n가힣中~{}"), max_size=60),
    st.sampled_from(["iso2022_kr", "hz"]),
    sizes,
    st.data(),
)
def test_lines_of_stateful_encodings(path, text, encoding, block_bytes, data):
    text = text.encode(encoding, "ignore").decode(encoding)
    with open(path, "wb") as file:
        file.write(text.encode(encoding))
    expected = text.split("\n") if not text.endswith("\n") else text.split("\n")[:-1]
    source = FileSource.text(path, split_size=1, encoding=encoding)
    assert read(source, block_bytes, data) == (expected if text else [])


@given(st.binary(max_size=40), sizes, sizes, st.data())
def test_lines_of_bytes_that_may_be_no_text(path, content, split_size, block_bytes, data):
    with open(path, "wb") as file:
        file.write(content)
    lines = content.split(b"\n")
    cut = [line.removesuffix(b"\r") for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    expected = []
    for line in cut:
        try:
            expected.append(line.decode())
        except UnicodeDecodeError:
            continue
    source = FileSource.text(path, split_size=split_size, on_error="skip")
    if not content.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")):
        assert read(source, block_bytes, data) == expected
