"""The head of a cluster dies and comes back, with Redis behind its GCS: the job continues without a person.

Needs root, for hosts with networks and process ids of their own: see `jobs/hosts.py`. It takes minutes.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from jobs.hosts import Network, network, why_not
from jobs.oracle import hidden_files
from jobs.redis import redis_server, why_no_redis
from jobs.watched import WatchedJob

PASSWORD = secrets.token_hex(16)

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture
def waits() -> dict[str, str]:
    """Seconds that processes wait for a head: as long as Ray has it."""
    return {}


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory, waits: dict[str, str]) -> Iterator[Network]:
    """A head without CPUs, two workers, and Redis on a host of its own."""
    for reason in (why_not(), why_no_redis()):
        if reason is not None:
            pytest.skip(reason)
    with network(4, RAY_external_storage_namespace="words", **waits) as made:
        *_, apart = made.hosts
        in_it = ("ip", "netns", "exec", apart.namespace)
        with redis_server(tmp_path_factory.mktemp("redis"), apart.address, 6380, PASSWORD, *in_it) as address:
            made.hosts.remove(apart)
            behind = {"RAY_REDIS_ADDRESS": address, "RAY_REDIS_PASSWORD": PASSWORD}
            made.head.environment = {**made.head.environment, **behind}
            made.start_head()
            for host in made.workers:
                made.start_worker(host)
            yield made
            made.hosts.append(apart)


def gcs_server(hosts: Network) -> psutil.Process:
    """The GCS of these hosts, and of no other cluster on this machine."""
    mine = map(psutil.Process, hosts.head.pids())
    return next(process for process in mine if process.name() == "gcs_server")


@pytest.mark.parametrize("seconds", [2.0, 15.0])
def test_the_head_dies_and_another_one_is_started_in_its_place(
    tmp_path: Path, hosts: Network, seconds: float
) -> None:
    """All processes of the head node, the GCS among them, are gone for a while."""
    job = WatchedJob.submitted(hosts, tmp_path)
    before = job.after_checkpoints(2)
    hosts.head.end()
    time.sleep(seconds)
    hosts.start_head()
    job.watch_again()
    after = job.until("records again", lambda seen: seen.report.statistics.completed_checkpoints > 0)
    done = after.report.statistics.completed_checkpoints
    job.after_checkpoints(done + 2)

    report = job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []
    assert report.statistics.attempt >= before.report.statistics.attempt


def test_the_head_is_away_for_longer_than_processes_wait_for_it(tmp_path: Path, hosts: Network) -> None:
    """Workers leave after a minute without a GCS.

    Their nodes are started again; no job is submitted again.
    """
    job = WatchedJob.submitted(hosts, tmp_path)
    job.after_checkpoints(2)
    hosts.head.end()
    time.sleep(90.0)
    hosts.start_head()
    for host in hosts.workers:
        host.end()
        hosts.start_worker(host)
    job.watch_again()
    after = job.until("records again", lambda seen: seen.report.statistics.completed_checkpoints > 0)
    job.after_checkpoints(after.report.statistics.completed_checkpoints + 2)

    job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []


@pytest.mark.parametrize(
    "waits", [{"RAY_gcs_rpc_server_reconnect_timeout_s": "600"}], ids=["for ten minutes"]
)
def test_with_the_setting_of_the_operations_guide_nodes_wait_for_a_head_that_is_away_for_long(
    tmp_path: Path, hosts: Network
) -> None:
    """At Ray's setting they would have left: the same time as above, and no node is started again."""
    job = WatchedJob.submitted(hosts, tmp_path)
    job.after_checkpoints(2)
    hosts.head.end()
    time.sleep(90.0)
    hosts.start_head()
    job.watch_again()
    after = job.until("records again", lambda seen: seen.report.statistics.completed_checkpoints > 0)
    job.after_checkpoints(after.report.statistics.completed_checkpoints + 2)

    job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []


def test_a_frozen_gcs_goes_on_where_it_was(tmp_path: Path, hosts: Network) -> None:
    """SIGSTOP for twenty seconds: no process can be placed or found meanwhile, and none has to be."""
    job = WatchedJob.submitted(hosts, tmp_path)
    before = job.after_checkpoints(2).report
    frozen = gcs_server(hosts)
    os.kill(frozen.pid, signal.SIGSTOP)
    try:
        time.sleep(20.0)
    finally:
        os.kill(frozen.pid, signal.SIGCONT)
    after = job.until("a report", lambda seen: True).report
    assert (after.master, after.statistics.attempt) == (before.master, before.statistics.attempt)
    assert after.statistics.completed_checkpoints > before.statistics.completed_checkpoints + 2
    job.after_checkpoints(after.statistics.completed_checkpoints + 2)

    job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []
