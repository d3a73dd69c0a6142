"""The trend of the lag: it grows, stays, or shrinks with an estimated end."""

from __future__ import annotations

import pytest
from serving.acting import BEGAN, JOB, acting_job
from serving.client import Client
from serving.in_thread import served
from serving.reports import TOKEN
from serving.scripted import ScriptedDirectory

from penstock.actors.web.samples import LagTrend, Sample, lag_trend


def samples(*lags: float | None, every: float = 1.0) -> list[Sample]:
    return [Sample(at=1_000.0 + every * place, lag=lag) for place, lag in enumerate(lags)]


def sawtooth(start: float, slope: float, seconds: int = 60) -> list[Sample]:
    """Counters arrive every two seconds, so half of the samples are a second old."""
    return samples(*(start + slope * second + second % 2 for second in range(seconds)))


def test_a_job_that_catches_up_says_when_its_lag_is_gone() -> None:
    trend = lag_trend(sawtooth(500.0, -2.0))
    assert trend is not None
    assert trend.direction == "shrinks"
    assert trend.gone_in == pytest.approx((500 - 2 * 59) / 2, rel=0.02)
    assert str(trend) == "is gone in about 3 min"


def test_a_lag_that_grows_or_stays_has_no_end() -> None:
    grows, stays = lag_trend(sawtooth(20.0, 0.5)), lag_trend(sawtooth(300.0, 0.0))
    assert grows is not None
    assert stays is not None
    assert (str(grows), grows.gone_in) == ("grows", None)
    assert grows.slope == pytest.approx(0.5, abs=0.02)
    assert (str(stays), stays.gone_in) == ("stays", None)
    assert stays.lag == pytest.approx(300.5, abs=0.5)


def test_what_every_job_is_behind_is_no_lag_that_goes_away() -> None:
    trend = lag_trend(sawtooth(4.0, -0.05))
    assert trend is not None
    assert trend.direction == "stays"


def test_only_the_last_minute_counts() -> None:
    was = [*samples(*range(300))]
    now = [Sample(at=1_300.0 + second, lag=300.0 - 3 * second) for second in range(61)]
    trend = lag_trend(was + now)
    assert trend is not None
    assert trend.slope == pytest.approx(-3.0)


def test_samples_of_each_tenth_second_serve_while_nobody_looks() -> None:
    trend = lag_trend(samples(*(600.0 - 30 * place for place in range(7)), every=10.0))
    assert trend is not None
    assert trend.gone_in == pytest.approx(140.0)


@pytest.mark.parametrize(
    "known",
    [[], samples(1.0, 2.0), samples(*range(9)), samples(*range(60), None), samples(*[None] * 60)],
    ids=["none", "two", "nine seconds", "none now", "no event time"],
)
def test_too_little_says_nothing(known: list[Sample]) -> None:
    assert lag_trend(known) is None


def test_a_job_has_its_trend_in_rest_and_in_events() -> None:
    job = acting_job()
    with served(ScriptedDirectory(job), token=TOKEN) as server:
        client = Client(server.address, TOKEN)
        assert client.look(f"/v1/jobs/{JOB}")["lag_trend"] is None
        watcher = server._watchers[JOB]  # the test does not wait for a minute
        for place in range(30):
            watcher.samples.add(Sample(at=BEGAN + 1e9 + place, lag=90.0 - place))
        seen = client.look(f"/v1/jobs/{JOB}")["lag_trend"]
        assert seen == LagTrend(61.0, -1.0, "shrinks", 61.0).to_dict()
        assert seen["text"] == "is gone in about 61 s"
