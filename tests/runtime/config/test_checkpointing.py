"""Settings: what is taken, what is refused and what the refusal says."""

from datetime import timedelta

import pytest

from penstock.runtime.config.checkpointing import Checkpointing, CheckpointingMode, KeepAfter
from penstock.runtime.config.restart import ExponentialBackoff, FixedDelay, restart_from_mapping
from penstock.runtime.errors import ConfigurationError


def test_durations_are_timedeltas_or_seconds_and_read_as_seconds():
    config = Checkpointing(every=timedelta(minutes=2), timeout=30, min_pause=timedelta(milliseconds=500))
    assert (config.every, config.timeout, config.min_pause) == (120.0, 30.0, 0.5)


def test_names_stand_for_enum_members():
    config = Checkpointing(every=1, mode="at_least_once", keep_after="always")
    assert config.mode is CheckpointingMode.AT_LEAST_ONCE
    assert config.keep_after is KeepAfter.ALWAYS


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("every", 0),
        ("every", -1),
        ("every", True),
        ("every", "10s"),
        ("every", float("nan")),
        ("every", float("inf")),
        ("every", timedelta(0)),
        ("mode", "twice"),
        ("timeout", 0),
        ("min_pause", -0.5),
        ("max_concurrent", 0),
        ("max_concurrent", 1.5),
        ("max_concurrent", True),
        ("retain", 0),
        ("keep_after", "sometimes"),
        ("tolerable_failures", -1),
        ("tolerable_failures", False),
        ("allow_older", 1),
        ("storage", " "),
        ("storage", 7),
    ],
)
def test_nonsense_is_refused_with_the_name_of_the_setting_and_its_value(field, value):
    with pytest.raises(ConfigurationError) as refusal:
        Checkpointing(**{"every": 10, field: value})
    assert str(refusal.value).startswith(f"{field}={value!r}: give ")


@pytest.mark.parametrize("unknown", ["evry", "max_concurent", "min-pause"])
def test_an_unknown_setting_names_the_nearest_one(unknown):
    nearest = {"evry": "every", "max_concurent": "max_concurrent", "min-pause": "min_pause"}[unknown]
    with pytest.raises(ConfigurationError, match=f"no setting '{unknown}'; did you mean '{nearest}'"):
        Checkpointing.from_mapping({"every": 1, unknown: 1})


def test_a_missing_setting_is_named():
    with pytest.raises(ConfigurationError, match=r"Checkpointing: missing .*'every'"):
        Checkpointing.from_mapping({"retain": 2})


@pytest.mark.parametrize(
    "build",
    [
        lambda: FixedDelay(attempts=-1),
        lambda: FixedDelay(attempts=True),
        lambda: FixedDelay(delay=-1),
        lambda: ExponentialBackoff(initial=0),
        lambda: ExponentialBackoff(initial=10, maximum=5),
        lambda: ExponentialBackoff(multiplier=0.5),
        lambda: ExponentialBackoff(jitter=1.5),
        lambda: ExponentialBackoff(jitter=True),
        lambda: ExponentialBackoff(reset_after=0),
        lambda: ExponentialBackoff(attempts=0),
        lambda: restart_from_mapping({}),
        lambda: restart_from_mapping({"kind": "fixed"}),
        lambda: restart_from_mapping({"kind": "none", "attempts": 1}),
        lambda: restart_from_mapping({"kind": "fixed_delay", "dealy": 1}),
    ],
)
def test_nonsense_restarts_are_refused(build):
    with pytest.raises(ConfigurationError):
        build()


def test_restarts_can_be_written_as_mappings():
    given = {"kind": "exponential_backoff", "initial": timedelta(seconds=2), "maximum": 20}
    assert restart_from_mapping(given) == ExponentialBackoff(initial=2.0, maximum=20.0)
