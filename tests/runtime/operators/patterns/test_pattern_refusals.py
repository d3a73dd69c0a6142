"""Patterns that can't be meant, and calls that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pattern_setup import begin, then

from penstock import ConfigurationError, GraphError, OutputTag, ValueState
from penstock.patterns import AfterMatchSkipStrategy, Pattern, PatternProcessFunction
from penstock.testing import OperatorHarness

BEGIN: Pattern[str] = begin("a")


class Loud(PatternProcessFunction[str, str, str]):
    late_records = OutputTag[str]()

    def process_match(self, match: Any, ctx: Any) -> None: ...


class Counting(PatternProcessFunction[str, str, str]):
    seen = ValueState(int)

    def process_match(self, match: Any, ctx: Any) -> None: ...


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Pattern.begin(3), "Pattern.begin"),
        (lambda: Pattern.begin("a", wher=abs), "did you mean 'where'"),
        (lambda: Pattern.begin("a", where=3), "a condition is a function of a record, not 3"),
        (lambda: Pattern.begin("a", where=lambda a, b, c: True), "a record and the dict of the match so far"),
        (lambda: Pattern.begin("a", skip="next"), "skip= is an AfterMatchSkipStrategy, not 'next'"),
        (lambda: BEGIN.next("a"), "the pattern already has a step 'a'"),
        (lambda: BEGIN.times(0), "at_most must be at least 1, not 0"),
        (lambda: BEGIN.times(3, 2), "at_most must be at least 3, not 2"),
        (lambda: BEGIN.times(True), "a whole number of at least 0, not True"),
        (lambda: BEGIN.times_or_more(0), "a whole number of at least 1, not 0"),
        (lambda: BEGIN.times(2).one_or_more(), "step 'a' already has a quantifier"),
        (lambda: BEGIN.greedy(), "step 'a' takes one record; call times or one_or_more first"),
        (lambda: BEGIN.consecutive(), "step 'a' takes one record"),
        (lambda: BEGIN.until(str), "step 'a' takes one record"),
        (lambda: BEGIN.times(2, 3).until(str), "until is for one_or_more or times_or_more"),
        (lambda: BEGIN.one_or_more().until(str).until(str), "step 'a' already has an until condition"),
        (lambda: BEGIN.one_or_more().until(None), "a condition is a function of a record, not None"),
        (
            lambda: BEGIN.one_or_more().allow_combinations().greedy(),
            "allows combinations, so it can't be greedy",
        ),
        (lambda: BEGIN.one_or_more().greedy().allow_combinations(), "is greedy, so it can't allow"),
        (lambda: BEGIN.times(2).consecutive().allow_combinations(), "be consecutive and also allow"),
        (lambda: BEGIN.not_next("n").optional(), "no record matches"),
        (lambda: BEGIN.not_followed_by("n").one_or_more(), "a negative step takes no quantifier"),
        (lambda: BEGIN.optional().not_next("n"), "a negative step can't follow the optional step 'a'"),
        (lambda: BEGIN.within(0), "longer than 0 s"),
        (
            lambda: BEGIN.not_followed_by("n").within(1, since="previous").followed_by("b"),
            "so it must end the pattern; call within after followed_by",
        ),
        (lambda: BEGIN.within(1, since="last"), 'since= is "first" or "previous", not \'last\''),
        (lambda: BEGIN.not_followed_by("n").checked(), "nothing says when a match is complete: add within"),
        (
            lambda: begin("start", AfterMatchSkipStrategy.skip_to_last("strat")).checked(),
            "has no step 'strat'; did you mean 'start'",
        ),
    ],
)
def test_patterns_that_can_not_be_meant_are_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        build()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.pattern(Pattern), 'needs a pattern such as Pattern.begin\\("a"\\)'),
        (lambda s: s.pattern(BEGIN.not_followed_by("n")), "test_pattern_refusals.py:.*add within"),
        (lambda s: s.pattern(BEGIN, order=3), "pattern: order needs a function, not 3"),
        (lambda s: s.pattern(BEGIN).map(str), "a PatternStream has no map: choose what each match emits"),
        (lambda s: s.pattern(BEGIN).select("out"), "function"),
        (lambda s: s.pattern(BEGIN).select("out", 3), "select needs a function, not 3"),
        (lambda s: s.pattern(BEGIN).select("out", dict, timed_out="late"), "timed_out needs an OutputTag"),
        (
            lambda s: s.pattern(BEGIN).select("out", dict, timed_out=OutputTag("late_records")),
            "'late_records' is for late records; give one of the two another name",
        ),
        (lambda s: s.pattern(BEGIN).process("out", dict), "give an object"),
        (lambda s: s.pattern(BEGIN).process("out", lambda match: None), "for a plain function use select"),
        (lambda s: s.pattern(BEGIN).process("out", Counting()), r"Counting declares keyed state \('seen'\)"),
        (lambda s: s.pattern(BEGIN).process("out", Loud()), "'late_records' is for late records"),
        (
            lambda s: s.pattern(BEGIN).side_output_late_data("late"),
            "side_output_late_data needs an OutputTag",
        ),
    ],
)
def test_calls_that_are_wrong_are_refused_with_the_users_line(
    build: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        OperatorHarness.of(lambda stream: build(stream.key_by(str)))


def test_a_pattern_says_what_it_is() -> None:
    pattern = then(then(begin("a").times(2, 3), "next", "b").optional(), "followed_by_any", "c").one_or_more()
    assert str(then(pattern, "not_next", "n")) == "a{2,3} next b? followed_by_any c{1,} not_next n"


def test_each_method_leaves_the_pattern_as_it_was() -> None:
    BEGIN.next("b").within(3)
    assert str(BEGIN) == "a"
    assert BEGIN.limit is None
