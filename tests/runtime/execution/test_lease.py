"""The life of an actor without a sign of its JobMaster."""

from __future__ import annotations

from itertools import count

import pytest

from penstock.runtime.execution.deadlines import Lease


def test_a_lease_that_is_renewed_does_not_end() -> None:
    lease = Lease(timeout=4.0, now=0.0)
    for second in range(1, 100):
        assert not lease.is_over(float(second))
        lease.renew(float(second))


def test_silence_ends_it() -> None:
    lease = Lease(timeout=4.0, now=100.0)
    assert [lease.is_over(100.0 + n) for n in range(1, 6)] == [False] * 4 + [True]
    assert lease.silent == 5.0


def test_a_process_that_slept_for_long_hears_its_master_before_it_gives_up() -> None:
    lease = Lease(timeout=4.0, now=0.0)
    assert not lease.is_over(1.0)
    assert not lease.is_over(3600.0), "it could not have heard anything meanwhile"
    lease.renew(3600.0)
    assert not lease.is_over(3601.0)


def test_a_process_that_slept_and_hears_nothing_gives_up_soon() -> None:
    lease = Lease(timeout=4.0, now=0.0)
    lease.is_over(3600.0)
    assert [lease.is_over(3600.0 + n) for n in (1, 2, 3)] == [False, False, True]


@pytest.mark.parametrize("renewed", [0.0, 0.1, 3.0, 14.0, 14.9])
def test_it_lasts_its_whole_time_from_the_last_sign_whenever_that_comes(renewed: float) -> None:
    lease = Lease(timeout=60.0, now=0.0)
    lease.renew(renewed)
    over = next(now for now in count(15.0, 15.0) if lease.is_over(now))
    assert 60.0 < over - renewed <= 75.0
