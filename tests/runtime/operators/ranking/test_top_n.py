"""`top_n` gives what its model gives, for rows and columns, with changes and without."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking_models import Lives, Row, Step, outputs, records, steps

from penstock import DataStream, StateTtl
from penstock.runtime.errors import GraphError, OperatorError
from penstock.runtime.operators.ranking import top_n
from penstock.runtime.record.elements import ArrowBatch
from penstock.testing import OperatorHarness

TTLS = st.sampled_from([None, StateTtl(7, time="event")])


#: Ranks of a row, the best first.
Rank = Callable[[Row], tuple[Any, ...]]

#: The argument `by` with `descending`, and the ranks that it means.
ORDERS: list[tuple[Any, bool, Rank]] = [
    ("v", True, lambda row: (-row["v"],)),
    ("v", False, lambda row: (row["v"],)),
    ([("v", "desc"), ("w", "asc")], False, lambda row: (-row["v"], row["w"])),
    ([("w", "desc"), "v"], False, lambda row: (-row["w"], row["v"])),
    (["w", ("v", "asc")], True, lambda row: (-row["w"], row["v"])),
    ([("v", "asc")], True, lambda row: (row["v"],)),
]


def best(rows: Iterable[Row], n: int, rank: Rank) -> list[Row]:
    """The first `n` rows; of equal ranks the earlier arrival."""
    return sorted(rows, key=lambda row: (*rank(row), row["n"]))[:n]


def changes(
    given: Sequence[Step], n: int, ttl: StateTtl | None, rank: Rank
) -> list[tuple[list[Row], list[Row]]]:
    """Rows that left and rows that entered, by step: the difference of each life of a key in a step."""
    lives, top, found = Lives(ttl), dict[str, list[Row]](), []
    for step in given:
        if step.watermark is not None:
            lives.watermark = max(lives.watermark, step.watermark)
            continue
        left, entered, before = list[Row](), list[Row](), dict[str, list[Row]]()

        def settle(
            key: str,
            before: dict[str, list[Row]] = before,
            left: list[Row] = left,
            entered: list[Row] = entered,
        ) -> None:
            known, now = before.pop(key, []), top.get(key, [])
            left += [row for row in known if row not in now]
            entered += [row for row in now if row not in known]

        for row, second in records(step):
            key = row["k"]
            if lives.begins(key, second):
                if key in before:
                    settle(key)
                top.pop(key, None)
            lives.use(key, second)
            before.setdefault(key, top.get(key, []))
            top[key] = best([*top.get(key, []), row], n, rank)
        for key in list(before):
            settle(key)
        found.append((left, entered))
    return found


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: row["n"])


@given(steps(), st.integers(1, 3), st.sampled_from(ORDERS), TTLS)
def test_the_records_that_enter_are_those_of_the_model_from_rows_and_columns(
    some: list[Step], n: int, order: tuple[Any, bool, Rank], ttl: StateTtl | None
) -> None:
    by, descending, rank = order
    expected = [in_order(entered) for _, entered in changes(some, n, ttl, rank)]
    found = outputs(lambda s: s.top_n("top", by, n, "k", descending=descending, ttl=ttl), some)
    assert list(found) == expected


@given(steps(), st.integers(1, 3), st.sampled_from(ORDERS), TTLS)
def test_changes_say_what_enters_and_what_leaves_from_rows_and_columns(
    some: list[Step], n: int, order: tuple[Any, bool, Rank], ttl: StateTtl | None
) -> None:
    by, descending, rank = order

    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.top_n("top", by, n, "k", descending=descending, change_kind="is", ttl=ttl)

    for found, (left, entered) in zip(outputs(build, some), changes(some, n, ttl, rank), strict=True):
        said: dict[str, list[Row]] = {"insert": [], "delete": []}
        for row in found:
            said[row.pop("is")].append(row)
        assert in_order(said["insert"]) == in_order(entered)
        assert in_order(said["delete"]) == in_order(left)


@given(steps(), st.integers(1, 3), st.sampled_from(ORDERS))
def test_changes_of_keys_of_a_function_lead_to_the_same_best_records(
    some: list[Step], n: int, order: tuple[Any, bool, Rank]
) -> None:
    by, descending, _ = order

    def of(keys: Any) -> list[Row]:
        found: list[Row] = []
        for rows in outputs(
            lambda s: s.top_n("top", by, n, keys, descending=descending, change_kind="is"), some
        ):
            for row in rows:
                kind = row.pop("is")
                found.append(row) if kind == "insert" else found.remove(row)
        return in_order(found)

    assert of(lambda row: row["k"]) == of("k")


def test_top_n_the_incumbent_wins() -> None:
    rows = [{"k": 1, "v": 5, "n": number} for number in range(4)]
    for keys in ("k", lambda row: row["k"]):
        with OperatorHarness.of(lambda s, keys=keys: s.top_n("top", "v", 2, keys)) as harness:
            assert harness.push(rows[:3]) == rows[:2]
            assert harness.push(rows[3:]) == []
            better = {"k": 1, "v": 6, "n": 9}
            assert harness.push([better]) == [better]
    with OperatorHarness.of(lambda s: s.top_n("top", "v", 2, "k", change_kind="is")) as harness:
        harness.push(rows)
        left, _ = harness.push([better])
        assert left == {**rows[1], "is": "delete"}, "of equal incumbents the later one leaves"


def test_incumbents_win_after_a_restore_at_another_parallelism() -> None:
    def top(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.top_n("top", "v", 2, "k", change_kind="is")

    with OperatorHarness.of(top) as harness:
        harness.push([{"k": k, "v": 5, "n": number} for k in range(30) for number in range(2)])
        snapshot = harness.snapshot()
    for subtask in range(3):
        with OperatorHarness.of(top, restored=[snapshot], subtask=subtask, parallelism=3) as harness:
            own = [k for k in range(30) if harness.owns(k)]
            assert harness.push([{"k": k, "v": 5, "n": 2} for k in own]) == []
            found = harness.push([{"k": k, "v": 6, "n": 3} for k in own])
            left = sorted((row["k"], row["n"]) for row in found if row["is"] == "delete")
            assert left == [(k, 1) for k in own]


@pytest.mark.parametrize("n", [1, 3])
def test_texts_of_records_that_leave_survive_new_texts_and_restores(n: int) -> None:
    def top(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.top_n("top", "v", n, "k", change_kind="is")

    def row(k: int, step: int) -> Row:
        text = None if k % 5 == 0 else f"{k} {step} " * (1_000 if k % 2 else 1)
        return {"n": 30 * step + k, "k": k, "v": step, "text": text}

    harness = OperatorHarness.of(top)
    for step in range(90):
        if step in (5, 10):
            harness = OperatorHarness.of(top, restored=[harness.snapshot()])
        rows = [row(k, step) for k in range(30)]
        found = harness.push_batch(ArrowBatch(pa.RecordBatch.from_pylist(rows)))
        left = [row(k, step - n) | {"is": "delete"} for k in range(30) if step >= n]
        assert in_order(found) == in_order([*left, *(own | {"is": "insert"} for own in rows)])
    operator = harness._operator
    assert isinstance(operator, top_n.ChangesOfTopNOperator)
    assert operator._pools["text"].size < 3_000_000, "texts that have left are dropped"


@pytest.mark.parametrize("order", ORDERS[::2], ids=lambda order: str(order[0]))
@pytest.mark.parametrize("few", [0, 1 << 30])
def test_inserting_one_by_one_and_sorting_give_the_same(
    few: int, order: tuple[Any, bool, Rank], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(top_n, "_FEW_ROUNDS", few)
    draws, (by, descending, rank) = np.random.default_rng(3), order
    rows = [
        {"k": int(draws.integers(4)), "v": float(draws.integers(20)), "w": int(draws.integers(3)), "n": n}
        for n in range(600)
    ]

    def build(stream: DataStream[Any]) -> DataStream[Any]:
        return stream.top_n("top", by, 5, "k", descending=descending, change_kind="is")

    with OperatorHarness.of(build) as harness:
        for start in range(0, 600, 50):
            harness.push_batch(ArrowBatch(pa.RecordBatch.from_pylist(rows[start : start + 50])))
        held: list[Row] = []
        for row in harness.outputs:
            kind = row.pop("is")
            held.append(row) if kind == "insert" else held.remove(row)
    expected = [row for k in range(4) for row in best((r for r in rows if r["k"] == k), 5, rank)]
    assert in_order(held) == in_order(expected)


def test_columns_of_records_that_leave_come_back_with_their_types() -> None:
    first = pa.record_batch(
        {
            "k": ["a", "b"],
            "v": pa.array([1.5, 2.5]),
            "at": pa.array([1, 2], pa.timestamp("ms", "UTC")),
            "text": pa.array(["x", None]).dictionary_encode(),
            "list": pa.array([[1], []], pa.list_(pa.int64())),
        }
    )
    second = pa.record_batch({"k": ["a", "b"], "v": [3.5, 3.5], "more": [7, 8]})
    with OperatorHarness.of(lambda s: s.top_n("top", "v", 1, "k", change_kind="is")) as harness:
        harness.push_batch(ArrowBatch(first, pa.array([10, 20])))
        harness.push_batch(ArrowBatch(second, pa.array([30, 40])))
        (_, last) = harness.batches
    assert isinstance(last, ArrowBatch)
    assert last.batch.schema.field("at").type == pa.timestamp("ms", "UTC")
    assert last.timestamps is not None
    assert last.timestamps.to_pylist() == [30, 40, 30, 40], (
        "a deletion has the time of what replaced the record"
    )
    rows = last.batch.to_pylist()
    assert [row.pop("is") for row in rows] == ["delete", "delete", "insert", "insert"]
    assert rows[:2] == [{**row, "more": None} for row in first.to_pylist()]
    assert [row["more"] for row in rows[2:]] == [7, 8]


def test_rows_without_the_ranking_column_are_counted_and_a_taken_name_is_refused() -> None:
    with OperatorHarness.of(lambda s: s.top_n("top", "v", 1, "k", change_kind="is")) as harness:
        assert harness.push([{"k": 1}, {"k": 1, "v": 1}]) == [{"k": 1, "v": 1, "is": "insert"}]
        assert harness.statistics().extra == {"unranked_records": 1}
    for keys, by in (("k", "v"), (lambda row: row["k"], lambda row: row["v"])):
        with (
            OperatorHarness.of(
                lambda s, k=keys, by=by: s.top_n("top", by, 1, k, change_kind="is")
            ) as harness,
            pytest.raises(OperatorError, match="records already have a column 'is'"),
        ):
            harness.push([{"k": 1, "v": 2, "is": 0}])


def test_a_name_of_the_state_asks_for_another_name_of_the_column() -> None:
    with (
        OperatorHarness.of(lambda s: s.top_n("top", ["v", "w"], 1, "k", change_kind="is")) as harness,
        pytest.raises(OperatorError, match=r"':rank2', a name that the state needs; rename the column"),
    ):
        harness.push([{"k": 1, "v": 2, "w": 3, ":rank2": 0}])


def test_a_record_without_one_of_its_ranks_is_dropped_and_counted() -> None:
    rows = [{"k": 1, "v": 1, "w": None}, {"k": 1, "v": 1, "w": float("nan")}, {"k": 1, "v": 1, "w": 0.5}]
    for keys in ("k", lambda row: row["k"]):
        with OperatorHarness.of(lambda s, keys=keys: s.top_n("top", ["v", "w"], 1, keys)) as harness:
            assert harness.push([*rows, {"k": 1, "w": 2.0}]) == rows[2:]
            assert harness.statistics().extra == {"unranked_records": 3}


@pytest.mark.parametrize(("by", "what"), [("v", "column 'v'"), (["v", "w"], "columns 'v', 'w'")])
def test_an_error_of_ranks_by_columns_names_the_columns(by: Any, what: str) -> None:
    for record, why in (
        ((1, 2), "needs .* rows that are dicts"),
        ({"v": "x", "w": 1}, f"{what} returned .*x"),
    ):
        with OperatorHarness.of(lambda s: s.top_n("top", by, 1, lambda row: 1)) as harness:
            harness.push([{"v": 1, "w": 1}])
            with pytest.raises(OperatorError, match=f"top_n: by {what} failed: .*{why}") as caught:
                harness.push([record])
        assert "ranking_functions.py" not in str(caught.value)


@pytest.mark.parametrize("by", [("v", "w"), [], ["v", "v"], [("v", "down")], [5], [("v", "w", "x")]])
def test_orders_that_are_none_are_refused(by: Any) -> None:
    with pytest.raises(GraphError, match="top_n: by "):
        OperatorHarness.of(lambda s: s.top_n("top", by, 1, "k"))


def test_ranks_of_one_order_must_be_of_one_kind() -> None:
    with OperatorHarness.of(lambda s: s.top_n("top", ["v", "w"], 1, "k")) as harness:
        harness.push([{"k": 1, "v": 2, "w": 3}])
        with pytest.raises(OperatorError, match="column 'w' has floats here and whole numbers in the state"):
            harness.push([{"k": 1, "v": 2, "w": 3.5}])


def test_a_row_without_a_key_has_the_key_none_in_each_batch() -> None:
    rows = [{"k": None, "v": 1}, {"v": 2}]
    for changes in ({}, {"change_kind": "is"}):
        for cuts in ([rows], [rows[:1], rows[1:]]):
            with OperatorHarness.of(lambda s, c=changes: s.top_n("top", "v", 1, "k", **c)) as harness:
                for some in cuts:
                    last = harness.push(some)
                assert (last[-1].get("k"), last[-1]["v"]) == (None, 2)


def test_a_column_of_another_type_is_named() -> None:
    with OperatorHarness.of(lambda s: s.top_n("top", "v", 1, "k", change_kind="is")) as harness:
        harness.push([{"k": 1, "v": 1, "x": 1}])
        with pytest.raises(OperatorError, match="top_n: column 'x' is of type double here and of type int64"):
            harness.push([{"k": 1, "v": 2, "x": 1.5}])


def test_a_ranking_function_can_not_change_records() -> None:
    for build in (
        lambda s: s.top_n("top", lambda row: row.pop("v"), 1, lambda row: row["k"]),
        lambda s: s.latest_by("latest", lambda row: row.pop("v"), lambda row: row["k"]),
    ):
        with OperatorHarness.of(build) as harness:
            assert harness.push([{"k": 1, "v": 1}, {"k": 1, "v": 0}]) == [{"k": 1, "v": 1}]
