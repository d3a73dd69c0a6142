"""Hosts with networks of their own are cut off, lose packets and come back: the result stays exact.

Needs root: see `jobs/hosts.py`. Everything takes minutes.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from jobs.hosts import Host, Network, has_iptables, has_netem, has_tbf, lives, network, why_not
from jobs.oracle import hidden_files
from jobs.watched import PATIENCE, Seen, WatchedJob

_UNABLE = why_not()
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(_UNABLE is not None, reason=_UNABLE or ""),
]

SHAPE = "tc qdisc add dev eth0 root"


@pytest.fixture(scope="module")
def hosts() -> Iterator[Network]:
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with network() as made:
        made.start_head()
        for host in made.workers:
            made.start_worker(host)
        yield made


@pytest.fixture
def healed(hosts: Network) -> Iterator[Network]:
    """All hosts are up and have their nodes, and no packet is lost, whatever the test before has done."""
    for host in hosts.workers:
        if not host.pids():
            hosts.start_worker(host)
    yield hosts
    for host in hosts.workers:
        host.heal()
        for undo in ("iptables -F", "tc qdisc del dev eth0 root"):
            subprocess.run(["ip", "netns", "exec", host.namespace, *undo.split()], capture_output=True)


def needs(there: bool, reason: str) -> None:
    if not there:
        pytest.skip(reason)


def dropped_packets(host: Host) -> int:
    """Number of packets that the first rule for incoming ones has dropped."""
    return int(host.run("iptables", "-L", "INPUT", "-v", "-x", "-n").splitlines()[2].split()[0])


def host_of(network: Network, seen: Seen, vertex: str) -> Host:
    address = min(seen.addresses(vertex))
    return next(host for host in network.hosts if host.address == address)


def test_a_host_that_is_cut_off_goes_on_alone_and_leaves_when_it_hears_again(
    tmp_path: Path, healed: Network
) -> None:
    """Its subtasks can still write to the shared folder, and must not commit there."""
    job = WatchedJob.submitted(healed, tmp_path)
    before = job.after_checkpoints(2)
    victim = host_of(healed, before, "count")
    zombies = victim.pids()
    victim.cut()
    after = job.running_without(victim.address, before.report.statistics.attempt)
    assert victim.address not in after.alive
    job.after_checkpoints(after.report.statistics.completed_checkpoints + 2)
    assert any(map(lives, zombies)), "nobody was cut off"
    victim.heal()
    left = time.monotonic() + PATIENCE
    while any(map(lives, zombies)):
        assert time.monotonic() < left, "what was cut off has not left"
        time.sleep(0.2)
    victim.end()
    healed.start_worker(victim)
    job.until("the node again", lambda s: victim.address in s.alive)

    job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []


def test_a_cable_that_is_pulled_for_a_second_costs_nothing(tmp_path: Path, healed: Network) -> None:
    """Shorter than the health checks: no node dies, and nothing is lost on the way."""
    job = WatchedJob.submitted(healed, tmp_path)
    before = job.after_checkpoints(2)
    victim = host_of(healed, before, "count")
    for _ in range(3):
        victim.cut()
        time.sleep(1.0)
        victim.heal()
        time.sleep(2.0)
    done = job.until("a report", lambda s: True).report.statistics.completed_checkpoints
    after = job.after_checkpoints(done + 2)
    assert victim.address in after.alive

    job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []


def test_a_network_that_loses_packets_loses_no_record(tmp_path: Path, healed: Network) -> None:
    needs(has_iptables(), "no iptables here that drops packets by chance")
    for host in healed.workers:
        for chain in ("INPUT", "OUTPUT"):
            rule = f"iptables -A {chain} -m statistic --mode random --probability 0.05 -j DROP"
            host.run(*rule.split())
    job = WatchedJob.submitted(healed, tmp_path)
    job.after_checkpoints(4)

    job.finish_exactly()
    assert all(dropped_packets(host) > 0 for host in healed.workers)


def test_two_workers_that_hear_the_head_and_not_each_other(tmp_path: Path, healed: Network) -> None:
    """No node is dead for the cluster, and records do not arrive: the job may wait, and must stay exact."""
    needs(has_iptables(), "no iptables here")
    job = WatchedJob.submitted(healed, tmp_path)
    job.after_checkpoints(2)
    first, second = healed.workers
    for chain, side in (("INPUT", "-s"), ("OUTPUT", "-d")):
        first.run("iptables", "-A", chain, side, second.address, "-j", "DROP")
    time.sleep(8.0)
    first.run("iptables", "-F")
    done = job.until("a report", lambda s: True).report.statistics.completed_checkpoints
    job.after_checkpoints(done + 2)

    job.finish_exactly()
    assert hidden_files(tmp_path / "out") == []


def test_a_narrow_network_is_only_slow(tmp_path: Path, healed: Network) -> None:
    needs(has_tbf(), "this kernel has no tbf, which limits bandwidth")
    for host in healed.workers:
        host.run(*f"{SHAPE} tbf rate 2mbit burst 32kbit latency 400ms".split())
    job = WatchedJob.submitted(healed, tmp_path)
    job.after_checkpoints(3)

    report = job.finish_exactly()
    assert report.statistics.restarts == 0


def test_a_network_with_long_ways_is_only_slow(tmp_path: Path, healed: Network) -> None:
    needs(has_netem(), "this kernel has no netem, which delays packets")
    for host in healed.workers:
        host.run(*f"{SHAPE} netem delay 100ms 30ms".split())
    job = WatchedJob.submitted(healed, tmp_path)
    job.after_checkpoints(3)

    report = job.finish_exactly()
    assert report.statistics.restarts == 0
