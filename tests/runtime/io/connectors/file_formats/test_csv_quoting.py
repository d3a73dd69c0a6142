from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.io.connectors.file_formats.csv_dialect import Quoting, quoting_of


@pytest.mark.parametrize(
    ("block", "quoting"),
    [
        (b"", Quoting.CLOSED),
        (b"a,b\n", Quoting.CLOSED),
        (b'"a","b ""c"""\r\n', Quoting.CLOSED),
        (b'"",""\n', Quoting.CLOSED),
        (b'""""', Quoting.CLOSED),
        (b'1,"a\n', Quoting.OPEN),
        (b'"a""\n', Quoting.OPEN),
        (b'a"b\n', Quoting.IRREGULAR),
        (b'"a"b\n', Quoting.IRREGULAR),
        (b'"a" \n', Quoting.IRREGULAR),
        (b"a\rb\n", Quoting.IRREGULAR),
        (b'"a\rb"\n', Quoting.IRREGULAR),
    ],
)
def test_quoting_is_seen_from_the_places_of_the_quotes(block, quoting):
    assert quoting_of(block, ord(",")) is quoting


@given(st.lists(st.lists(st.text('a",\n ', max_size=5), min_size=2, max_size=2), min_size=1, max_size=6))
def test_a_line_end_that_is_seen_as_outside_of_quotes_is_the_end_of_a_row(rows):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    ends = set()
    for row in rows:
        writer.writerow(row)
        ends.add(text.tell())
    data = text.getvalue().encode()
    for at, byte in enumerate(data, 1):
        if byte == ord("\n"):
            assert quoting_of(data[:at], ord(",")) is (Quoting.CLOSED if at in ends else Quoting.OPEN)
