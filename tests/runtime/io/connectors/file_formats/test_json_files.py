from __future__ import annotations

import gzip
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import BadRecordError, FileSource
from penstock.runtime.io.formats.json_rows import parse_together


def test_each_line_is_a_value_and_blank_lines_are_none(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n\n[1, "x\\ny"]\r\n   \n"text"\n null\n1.5')
    expected = [{"a": 1}, [1, "x\ny"], "text", None, 1.5]
    assert read_all(FileSource.json(path)).rows == expected
    assert read_all(FileSource.json(path, split_size=3), 1, restore_every=1).rows == expected


def test_what_json_of_python_reads_is_read(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    values = [12345678901234567890123, "\u2028", {"é": [True, None]}, "-Infinity"]
    path.write_text(
        "\n".join(json.dumps(value, ensure_ascii=False) for value in values) + "\nNaN\n-Infinity\n"
    )
    rows = read_all(FileSource.json(path)).rows
    assert rows[:4] == values
    assert math.isnan(rows[4])
    assert rows[5] == -math.inf


@pytest.mark.parametrize(
    "lines",
    [
        ["1, 2", "3"],
        ["[1", "2]", "3, 4"],
        ['{"a": [{}', '{"b": 2}]}', "{}, {}"],
        ['"a', 'b"', "1, 2, 3"],
        ['"-Infinity', '-Infinity"'],
        ["1,-Infinity,2", "[3", "4]"],
        ["", "1"],
        ["1 2"],
    ],
)
def test_lines_that_only_together_make_json_are_not_taken_for_values(lines):
    assert parse_together(lines) is None


def test_a_bad_line_fails_the_source_with_file_offset_and_text(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(
        BadRecordError, match=r"a\.jsonl, line 2 \(byte 9\): the value is not JSON.*'\{\"a\": '"
    ):
        read_all(FileSource.json(path))


def test_bad_lines_are_skipped_or_become_dead_letters(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"1\noops\n2\n\xff\n" + b"[" * 100_000 + b"\n3\n")
    skipping = read_all(FileSource.json(path, on_error="skip"))
    assert (skipping.rows, skipping.skipped) == ([1, 2, 3], 3)
    letters = read_all(FileSource.json(path, on_error="dead_letter"), 1, restore_every=1)
    assert letters.rows == [1, 2, 3]
    assert [(each.record, each.origin) for each in letters.dead_letters] == [
        ("oops", f"{path}:2"),
        (b"\xff", f"{path}:9"),
        ("[" * 100_000, f"{path}:11"),
    ]


LOST = [
    ('{"a": 1, "b": 2, "a": 3}', "the field 'a' twice"),
    ('{"x": [{"a": 1, "a": 1}]}', "the field 'a' twice"),
    ('{"a" : 1, "t": "b", "a": 2}', "the field 'a' twice"),
    ('{"a": 1e400}', "no float can hold 1e400"),
    ('{"a": [[-1e400]]}', "no float can hold -1e400"),
    ("[1e400]", "no float can hold 1e400"),
    ("1e400", "no float can hold 1e400"),
]


@pytest.mark.parametrize(("line", "why"), LOST)
@pytest.mark.parametrize("beside", [[], ['{"a": 1, "t": "12:30 :"}'], ['{"a": "x"}', '{"x": {"a": [1.5]}}']])
def test_a_line_of_which_the_parser_loses_something_is_bad(tmp_path, read_all, line, why, beside):
    path = tmp_path / "in.jsonl"
    path.write_text("\n".join([*beside, line, *beside]) + "\n")
    back = read_all(FileSource.json(path, on_error="dead_letter"))
    assert back.rows == [json.loads(each) for each in [*beside, *beside]]
    (letter,) = back.dead_letters
    assert why in letter.error
    assert letter.record == line
    assert letter.origin == f"{path}:{sum(len(each) + 1 for each in beside)}"


def test_infinity_that_is_written_so_is_read(tmp_path, read_all):
    path = tmp_path / "in.jsonl"
    path.write_text('{"a": Infinity}\n{"a": 1e300}\n')
    assert read_all(FileSource.json(path)).rows == [{"a": math.inf}, {"a": 1e300}]


@given(
    rows=st.lists(
        st.recursive(
            st.one_of(
                st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(':" a\\t')
            ),
            lambda inner: st.one_of(
                st.lists(inner, max_size=3), st.dictionaries(st.text('ab:" ', max_size=2), inner, max_size=3)
            ),
            max_leaves=6,
        ),
        min_size=1,
        max_size=4,
    ),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :"), (",", "\t:")]),
)
def test_lines_without_a_loss_are_parsed_together(rows, separators):
    assert parse_together([json.dumps(row, separators=separators) for row in rows]) == rows


def test_the_number_of_a_bad_line_is_found_in_a_later_range_of_the_file(tmp_path, read_all):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"a": 1}\r\n' * 5_000 + b"oops\n")
    with pytest.raises(BadRecordError, match=r"a\.jsonl, line 5001 \(byte 50000\): the value is not JSON"):
        read_all(FileSource.json(path, split_size=10_000))


def test_a_bad_line_of_a_compressed_file_is_named_by_its_offset(tmp_path, read_all):
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"1\noops\n"))
    with pytest.raises(BadRecordError, match=r"a\.jsonl\.gz:2: the value is not JSON"):
        read_all(FileSource.json(path))
