from __future__ import annotations

import pickle
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig, AllowPickle, JobConfig
from penstock.runtime.config.restart import ExponentialBackoff, FixedDelay, NoRestart
from penstock.runtime.errors import ConfigurationError


def test_a_timedelta_is_kept_as_seconds() -> None:
    buffer_timeout: Any = timedelta(milliseconds=5)
    gap_timeout: Any = timedelta(minutes=1)
    config = JobConfig(buffer_timeout=buffer_timeout, advanced=AdvancedConfig(gap_timeout=gap_timeout))
    assert (config.buffer_timeout, config.advanced.gap_timeout) == (0.005, 60.0)


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("buffer_timeout", -1, "at least 0 s"),
        ("buffer_timeout", "fast", "timedelta, or seconds"),
        ("deployment_timeout", 0, "longer than 0 s"),
        ("allow_pickle", "no", "True or False or 'records'"),
        ("allow_pickle", 1, "True or False or 'records'"),
        ("end_of_partition", "ignored", "'counts_as_barrier' or 'aborts'"),
        ("checkpointing", 5, "Checkpointing(...) or None"),
        ("checkpointing", Checkpointing, "Checkpointing(...) or None"),
        ("restart", "always", "FixedDelay(...)"),
        ("restart", FixedDelay, "FixedDelay(...)"),
        ("advanced", None, "AdvancedConfig(...)"),
        ("advanced", {"credits": 4}, "AdvancedConfig(...)"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(setting: str, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        JobConfig(**{setting: value})
    assert str(error.value).startswith(f"{setting}=")
    assert allowed in str(error.value)


@pytest.mark.parametrize(
    ("allowed", "unaligned", "state", "records"),
    [
        (True, False, True, True),
        (True, True, True, True),
        ("records", False, False, True),
        ("records", True, False, False),
        (False, False, False, False),
        (False, True, False, False),
    ],
)
def test_records_in_flight_are_state_of_an_unaligned_checkpoint(
    allowed: AllowPickle, unaligned: bool, state: bool, records: bool
) -> None:
    config = JobConfig(allow_pickle=allowed, checkpointing=Checkpointing(every=1, unaligned=unaligned))
    assert (config.pickles_state, config.pickles_records) == (state, records)


@pytest.mark.parametrize(
    ("setting", "value", "allowed"),
    [
        ("lease_timeout", float("nan"), "finite"),
        ("gap_timeout", None, "timedelta, or seconds"),
        ("storage_timeout", 0, "longer than 0 s"),
        ("alignment_memory", -1, "at least 0"),
        ("alignment_memory", 1.5, "whole number"),
        ("max_raw_state_bytes", -1, "at least 0"),
        ("credits", 0, "at least 1"),
        ("credits", 2.0, "whole number"),
        ("credits", True, "whole number"),
        ("buffer_rows", -5, "at least 1"),
    ],
)
def test_an_advanced_value_that_is_not_allowed_is_named_with_what_is(
    setting: str, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigurationError) as error:
        AdvancedConfig(**{setting: value})
    assert str(error.value).startswith(f"{setting}=")
    assert allowed in str(error.value)


@pytest.mark.parametrize("build", [lambda **s: JobConfig(**s), lambda **s: JobConfig.from_mapping(s)])
def test_an_unknown_setting_names_the_nearest_one(build: Any) -> None:
    with pytest.raises(
        ConfigurationError, match=r"no (setting|argument) 'bufer_timeout'; did you mean 'buffer_timeout'"
    ):
        build(bufer_timeout=1)


def test_nested_settings_come_from_mappings() -> None:
    config = JobConfig.from_mapping(
        {
            "checkpointing": {"every": 2},
            "restart": {"kind": "fixed_delay", "attempts": 1},
            "advanced": {"credits": 2},
        }
    )
    assert config == JobConfig(
        checkpointing=Checkpointing(every=2),
        restart=FixedDelay(attempts=1),
        advanced=AdvancedConfig(credits=2),
    )


def test_a_misspelt_nested_setting_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="Checkpointing has no setting 'evry'"):
        JobConfig.from_mapping({"checkpointing": {"evry": 2}})
    with pytest.raises(
        ConfigurationError, match="AdvancedConfig has no setting 'credit'; did you mean 'credits'"
    ):
        JobConfig.from_mapping({"advanced": {"credit": 2}})


def test_a_job_restarts_by_default_only_when_it_takes_checkpoints() -> None:
    assert JobConfig().restart_or_default == NoRestart()
    restart = JobConfig(checkpointing=Checkpointing(every=1)).restart_or_default
    assert restart == ExponentialBackoff(attempts=10)


def test_a_given_restart_strategy_wins() -> None:
    config = JobConfig(checkpointing=Checkpointing(every=1), restart=NoRestart())
    assert config.restart_or_default == NoRestart()
    assert JobConfig(restart=FixedDelay()).restart_or_default == FixedDelay()


def test_settings_survive_replace_and_pickle() -> None:
    config = replace(JobConfig(advanced=AdvancedConfig(credits=3)), buffer_timeout=1)
    assert (
        pickle.loads(pickle.dumps(config))
        == config
        == JobConfig(advanced=AdvancedConfig(credits=3), buffer_timeout=1)
    )
