"""Patterns in a job: order of time, late records, state, errors, and what functions may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pattern_setup import begin, letter, then

from penstock import DataStream, OperatorError, OutputTag
from penstock.operators import ArrowBatch, RowBatch
from penstock.patterns import AfterMatchSkipStrategy, Pattern, PatternContext, PatternProcessFunction
from penstock.runtime.errors import StateMismatchError
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.functions.time_order import WAITING_RECORDS
from penstock.runtime.operators.patterns.key_matches import KeyMatches
from penstock.runtime.operators.patterns.pattern_operator import MATCHED_RECORDS, PARTIAL_MATCHES
from penstock.runtime.record.elements import END_OF_TIME
from penstock.testing import OperatorHarness

pytestmark = pytest.mark.usefixtures("either_backend")

SECOND = 1_000_000
TIMED_OUT: OutputTag[dict[str, list[str]]] = OutputTag("timed out")


def key_of(record: str) -> str:
    return record[-1]


def joined(match: dict[str, list[str]]) -> str:
    return " ".join(record for records in match.values() for record in records)


def a_b(pattern: Pattern[str] | None = None, **more: Any) -> Callable[[DataStream[str]], DataStream[str]]:
    """Finds `a` followed by `b` with the same last letter within ten seconds."""
    wanted = then(begin("a"), "followed_by", "b").within(10) if pattern is None else pattern
    return lambda s: s.key_by(key_of).pattern(wanted, **more).select("ab", joined, timed_out=TIMED_OUT)


def pushed(harness: OperatorHarness, **records: int) -> list[Any]:
    """Push records with their seconds."""
    return harness.push(list(records), [second * SECOND for second in records.values()])


def state_of(harness: OperatorHarness) -> list[dict[Any, Any]]:
    return [harness.state(name) for name in (WAITING_RECORDS, PARTIAL_MATCHES, MATCHED_RECORDS)]


def test_records_are_matched_in_the_order_of_their_timestamps() -> None:
    with OperatorHarness.of(a_b()) as harness:
        assert pushed(harness, b1=3, a1=1, b_1=5) == []
        assert harness.push_watermark(4 * SECOND) == ["a1 b1"]
        assert harness.batches == (RowBatch(["a1 b1"], [3 * SECOND]),), "the timestamp of its last record"


def test_equal_timestamps_by_a_second_order_that_users_give() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, b1=1, a1=1)
        assert harness.push_watermark(END_OF_TIME) == []
    with OperatorHarness.of(a_b(order=letter("b"))) as harness:
        pushed(harness, b1=1, a1=1)
        assert harness.push_watermark(END_OF_TIME) == ["a1 b1"]


def test_each_key_is_matched_on_its_own() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1, b2=2, a2=3, b1=4)
        assert harness.push_watermark(5 * SECOND) == ["a1 b1"]


def test_time_alone_moves_it() -> None:
    """FLINK-5033: a watermark without records ends partial matches."""
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1)
        harness.push_watermark(11 * SECOND - 1)
        assert harness.side_output("timed out") == []
        harness.push_watermark(11 * SECOND)
        assert harness.side_output("timed out") == [{"a": ["a1"], "b": []}]


def test_time_alone_completes_a_negative_end_with_the_limit_as_timestamp() -> None:
    with OperatorHarness.of(a_b(then(begin("a"), "not_followed_by", "b").within(10))) as harness:
        pushed(harness, a1=1, a2=2, b2=3)
        assert harness.push_watermark(60 * SECOND) == ["a1"]
        assert harness.batches == (RowBatch(["a1"], [11 * SECOND]),)


def test_a_deadline_comes_before_the_records_of_its_moment_and_before_later_ones() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1, b1=11, b_1=12)
        assert harness.push_watermark(60 * SECOND) == []
        assert harness.side_output("timed out") == [{"a": ["a1"], "b": []}]


def test_timed_out_partial_matches_as_a_side_output() -> None:
    pattern = then(then(begin("a"), "followed_by", "b"), "followed_by", "c").within(10)
    with OperatorHarness.of(a_b(pattern)) as harness:
        pushed(harness, a1=1, b1=2, c1=3, a2=4, b2=5, a3=6)
        assert harness.push_watermark(60 * SECOND) == ["a1 b1 c1"]
        assert harness.side_output("timed out") == [
            {"a": ["a2"], "b": ["b2"], "c": []},
            {"a": ["a3"], "b": [], "c": []},
        ]


def test_a_record_that_comes_at_a_deadline_is_stored_in_place_of_the_one_that_leaves() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1, a_1=11)
        harness.push_watermark(11 * SECOND)
        assert [record for _, record in harness.state(MATCHED_RECORDS)["1"].values()] == ["a_1"]
        pushed(harness, b1=12)
        assert harness.push_watermark(12 * SECOND) == ["a_1 b1"]


def test_timed_out_partial_matches_are_dropped_where_no_one_asks_for_them() -> None:
    build = lambda s: s.key_by(key_of).pattern(then(begin("a"), "next", "b").within(1)).select("ab", joined)  # noqa: E731
    with OperatorHarness.of(build) as harness:
        pushed(harness, a1=1)
        assert harness.push_watermark(60 * SECOND) == []
        assert state_of(harness) == [{}, {}, {}]


def test_late_records_go_to_a_side_output_and_are_counted() -> None:
    with OperatorHarness.of(a_b()) as harness:
        harness.push_watermark(5 * SECOND)
        pushed(harness, a1=5, a2=6)
        assert harness.side_output(LATE_RECORDS) == ["a1"]
        assert harness.statistics().extra[LATE_RECORDS] == 1


def test_late_records_may_have_a_tag_of_their_own() -> None:
    late = OutputTag[str]("late")

    def build(stream: DataStream[str]) -> DataStream[str]:
        return stream.key_by(key_of).pattern(begin("a")).side_output_late_data(late).select("a", joined)

    with OperatorHarness.of(build) as harness:
        harness.push_watermark(5 * SECOND)
        pushed(harness, a1=5)
        assert harness.side_output("late") == ["a1"]


def test_state_of_keys_that_never_return_goes_by_time() -> None:
    with OperatorHarness.of(a_b()) as harness:
        harness.push([f"a{n}" for n in range(300)], [SECOND] * 300)
        harness.push_watermark(2 * SECOND)
        assert len(harness.state(PARTIAL_MATCHES)) == len(harness.state(MATCHED_RECORDS)) == 10
        harness.push_watermark(11 * SECOND)
        assert state_of(harness) == [{}, {}, {}]
        assert len(harness.side_output("timed out")) == 300


def test_no_leak_of_the_shared_buffer() -> None:
    """FLINK-19970: a record that no partial match has leaves the state at once."""
    pattern = then(then(begin("a"), "followed_by_any", "b"), "next", "c").within(60)
    with OperatorHarness.of(a_b(pattern)) as harness:
        pushed(harness, a1=1, b1=2, x1=3, b_1=4, y1=5)
        harness.push_watermark(5 * SECOND)
        records = harness.state(MATCHED_RECORDS)["1"]
        assert [record for _, record in records.values()] == ["a1"]


def test_a_record_is_in_the_state_once_however_many_partial_matches_share_it() -> None:
    pattern = begin("a").one_or_more().allow_combinations().within(60)
    with OperatorHarness.of(a_b(then(pattern, "next", "b"))) as harness:
        pushed(harness, a_1=1, aa_1=2, ab_1=3)
        harness.push_watermark(3 * SECOND)
        assert len(harness.state(PARTIAL_MATCHES)["1"]) == 7
        assert len(harness.state(MATCHED_RECORDS)["1"]) == 3


def test_many_partial_matches_are_not_read_from_the_state_again_for_each_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[Any] = []
    make = KeyMatches.of
    monkeypatch.setattr(KeyMatches, "of", lambda saved, records: read.append(saved) or make(saved, records))
    with OperatorHarness.of(a_b()) as harness:
        for part in range(9):
            harness.push([f"a{part}{n}1" for n in range(3)], [part * SECOND] * 3)
            harness.push_watermark(part * SECOND)
        assert len(read) == 6, "those of a key with few partial matches are"
        pushed(harness, b1=9)
        assert len(harness.push_watermark(9 * SECOND)) == 27


def test_a_restored_operator_continues_and_fires_its_deadlines() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1, a2=2, b2=9)
        harness.push_watermark(3 * SECOND)
        snapshot = harness.snapshot()
    with OperatorHarness.of(a_b(), restored=[snapshot]) as harness:
        pushed(harness, b1=3)
        assert harness.side_output(LATE_RECORDS) == ["b1"], "the reached watermark is restored, too"
        assert harness.push_watermark(60 * SECOND) == ["a2 b2"]
        assert harness.side_output("timed out") == [{"a": ["a1"], "b": []}]


def test_matches_of_a_record_come_in_the_order_of_their_records_also_after_a_restore() -> None:
    pattern = then(then(begin("a"), "followed_by_any", "b"), "followed_by", "c").within(60)
    with OperatorHarness.of(a_b(pattern)) as harness:
        harness.push(["a_1", *(f"b{n}_1" for n in range(12))], [n * SECOND for n in range(13)])
        harness.push_watermark(20 * SECOND)
        snapshot = harness.snapshot()
    with OperatorHarness.of(a_b(pattern), restored=[snapshot]) as harness:
        pushed(harness, c_1=21)
        assert harness.push_watermark(21 * SECOND) == [f"a_1 b{n}_1 c_1" for n in range(12)]


def test_a_complete_match_leaves_no_deadline_behind() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1)
        harness.push_watermark(1 * SECOND)
        pushed(harness, b1=2)
        harness.push_watermark(5 * SECOND)
        assert harness._operator._next_end() is None  # type: ignore[attr-defined]


def test_held_matches_are_restored_too() -> None:
    def build(stream: DataStream[str]) -> DataStream[str]:
        pattern: Pattern[str] = Pattern.begin(
            "one", where=letter("a"), skip=AfterMatchSkipStrategy.skip_past_last_event()
        )
        pattern = pattern.followed_by("two", where=lambda r, m: r[1] == m["one"][0][1]).within(10)
        return stream.key_by(key_of).pattern(pattern).select("ab", joined)

    with OperatorHarness.of(build) as harness:
        pushed(harness, a1x=1, a2x=2, c2x=3)
        assert harness.push_watermark(3 * SECOND) == []
        snapshot = harness.snapshot()
    with OperatorHarness.of(build, restored=[snapshot]) as harness:
        assert harness.push_watermark(60 * SECOND) == ["a2x c2x"]


def test_partial_matches_of_other_steps_are_refused() -> None:
    with OperatorHarness.of(a_b()) as harness:
        pushed(harness, a1=1)
        harness.push_watermark(1 * SECOND)
        snapshot = harness.snapshot()
    changed = then(begin("a"), "next", "b").within(10)
    with pytest.raises(OperatorError, match="change the steps back") as caught:
        OperatorHarness.of(a_b(changed), restored=[snapshot])
    assert isinstance(caught.value.__cause__, StateMismatchError)


def test_many_deadlines_fire_in_portions_and_the_watermark_waits() -> None:
    with OperatorHarness.of(
        lambda s: s.key_by(str).pattern(begin("a").next("b").within(1)).select("x", joined)
    ) as h:
        h.push([f"a{n}" for n in range(2000)], [0] * 2000)
        h.push_watermark(0)
        while h.watermarks == ():
            h.flush()
        h.push_watermark(SECOND)
        assert h.watermarks == (0,)
        h.flush()
        assert h.watermarks == (0, SECOND)
        assert h.state(PARTIAL_MATCHES) == {}


def test_records_may_be_dicts_and_arrow_batches() -> None:
    pattern: Pattern[dict[str, int]] = Pattern.begin("low", where=lambda row: row["v"] < 5)
    pattern = pattern.next("high", where=lambda row, match: row["v"] > match["low"][0]["v"])
    batch = pa.record_batch({"k": [1, 1], "v": [9, 2]})
    with OperatorHarness.of(lambda s: s.key_by("k").pattern(pattern).select("rise", dict)) as harness:
        harness.push_batch(ArrowBatch(batch, pa.array([20, 10])))
        assert harness.push_watermark(20) == [{"low": [{"k": 1, "v": 2}], "high": [{"k": 1, "v": 9}]}]


class Told(PatternProcessFunction[str, str, Any]):
    """Emits what its context says."""

    aside = OutputTag[str]()

    def open(self, ctx: Any) -> None:
        self.count = ctx.counter("matches")

    def process_match(self, match: dict[str, list[str]], ctx: PatternContext) -> Iterator[Any]:
        self.count.increment()
        yield ctx.current_key, joined(match), ctx.timestamp, ctx.watermark
        ctx.output(self.aside, "match")

    def process_timed_out_match(self, match: dict[str, list[str]], ctx: PatternContext) -> list[Any]:
        ctx.output(self.aside, "timeout")
        return [(ctx.current_key, joined(match), ctx.timestamp, ctx.watermark)]


def test_a_process_function_has_key_time_side_outputs_and_metrics() -> None:
    pattern = then(begin("a"), "followed_by", "b").within(10)
    with OperatorHarness.of(lambda s: s.key_by(key_of).pattern(pattern).process("told", Told())) as harness:
        pushed(harness, a1=1, b1=2, a2=3)
        assert harness.push_watermark(13 * SECOND) == [
            ("1", "a1 b1", 2 * SECOND, 13 * SECOND),
            ("2", "a2", 13 * SECOND, 13 * SECOND),
        ]
        assert harness.side_output("aside") == ["match", "timeout"]
        assert harness.statistics().extra["matches"] == 1


def test_functions_that_change_a_match_change_copies() -> None:
    seen: list[Any] = []

    def careless(match: dict[str, list[dict[str, Any]]]) -> int:
        seen.append([row.pop("v") for rows in match.values() for row in rows])
        return len(seen)

    def greedy_eyes(row: dict[str, Any], match: dict[str, list[dict[str, Any]]]) -> bool:
        match["a"][0].clear()
        return bool(row.pop("v") > 1)

    pattern: Pattern[dict[str, Any]] = Pattern.begin("a", where=lambda row: row["v"] == 1)
    pattern = pattern.followed_by_any("b", where=greedy_eyes)
    with OperatorHarness.of(lambda s: s.key_by("k").pattern(pattern).select("x", careless)) as harness:
        harness.push([{"k": 1, "v": 1}, {"k": 1, "v": 2}, {"k": 1, "v": 3}], [1, 2, 3])
        assert harness.push_watermark(9) == [1, 2]
        assert seen == [[1, 2], [1, 3]]


def broken_condition(record: str) -> bool:
    return record.no_such_method()  # type: ignore[attr-defined, no-any-return]


def broken_selection(match: dict[str, list[str]]) -> str:
    return match["b"][0]


def test_an_error_of_a_condition_names_step_function_line_and_record() -> None:
    pattern = begin("a").next("b", where=broken_condition)
    with OperatorHarness.of(a_b(pattern)) as harness:
        pushed(harness, a1=1, b1=2)
        with pytest.raises(OperatorError) as caught:
            harness.push_watermark(9 * SECOND)
    text = str(caught.value)
    assert "operator 'ab'" in text
    assert "pattern: condition of step 'b' broken_condition (" in text
    assert "test_pattern_operator.py:" in text
    assert "on record 'b1'" in text


def test_an_error_of_the_function_names_it_and_the_key() -> None:
    with OperatorHarness.of(
        lambda s: s.key_by(key_of).pattern(begin("a")).select("x", broken_selection)
    ) as harness:
        pushed(harness, a1=1)
        with pytest.raises(OperatorError) as caught:
            harness.push_watermark(9 * SECOND)
    assert "pattern function broken_selection (" in str(caught.value)
    assert "for key '1'" in str(caught.value)


def test_conditions_that_yield_are_refused() -> None:
    def yields(record: str) -> Iterator[bool]:
        yield True

    with pytest.raises(OperatorError, match="yields"):
        OperatorHarness.of(a_b(begin("a").next("b", where=yields)))


def test_a_function_of_select_that_yields_is_refused() -> None:
    def yields(match: dict[str, list[str]]) -> Iterator[str]:
        yield "match"

    with pytest.raises(OperatorError, match="yields"):
        OperatorHarness.of(lambda s: s.key_by(key_of).pattern(begin("a")).select("x", yields))


def test_records_without_timestamps_are_refused() -> None:
    with OperatorHarness.of(a_b()) as harness, pytest.raises(OperatorError, match="no timestamps"):
        harness.push(["a1"])
