"""Names of columns that no record has."""

from __future__ import annotations

import logging

import pytest

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.column_names import ColumnNames


def test_a_name_that_no_record_has_is_an_error_with_the_nearest_name() -> None:
    names = ColumnNames("filter", ["price"])
    message = (
        r"^filter: no record of a batch has a column 'price': they have 'id', 'prise'; "
        r"did you mean 'prise'\? For an optional field, .*map"
    )
    with pytest.raises(PenstockError, match=message):
        names.check([{"id": 1}, {"prise": 2}])


def test_without_a_near_name_the_message_lists_those_that_records_have() -> None:
    with pytest.raises(
        PenstockError, match=r"no record of a batch has a column 'x': they have 'k', 'v'\. For"
    ):
        ColumnNames("aggregate", ["k", "x"]).check([{"k": 1, "v": 2}])


def test_long_records_do_not_make_long_messages() -> None:
    with pytest.raises(PenstockError, match=r"'c19', \.\.\.\. For"):
        ColumnNames("select", ["x"]).check([{f"c{number}": 0 for number in range(30)}])


def test_one_record_with_the_name_is_enough() -> None:
    ColumnNames("filter", ["v"]).check([{}, {"v": None}, {}])


def test_only_the_first_batch_counts() -> None:
    names = ColumnNames("filter", ["v"])
    names.check([])
    names.check([{"v": 1}])
    names.check([{"w": 1}])


def test_records_that_are_no_dicts_are_left_to_the_operator() -> None:
    ColumnNames("filter", ["v"]).check([("v", 1)])


def test_a_key_function_names_no_columns() -> None:
    ColumnNames.of_key(len).check([{"k": 1}])
    with pytest.raises(
        PenstockError, match=r"key_by: no record of a batch has a column 'kk'.*did you mean 'k'"
    ):
        ColumnNames.of_key(ColumnKey(("kk",))).check([{"k": 1}])


def test_a_restored_operator_warns_once_and_continues(caplog: pytest.LogCaptureFixture) -> None:
    names = ColumnNames("filter", ["v"])
    names.only_warn()
    for _ in range(2):
        names.check([{"w": 1}])
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "no record of a batch has a column 'v'" in record.getMessage()
