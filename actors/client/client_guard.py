"""`ClientGuard`: ends a JobMaster that hangs, on behalf of a client that waits for its answer.

A JobMaster is guarded by some of its subtasks (`MasterGuard`). When these hang with it, or it has none yet,
only its clients are left to notice. Some calls are answered late by a JobMaster that is well, such as a wait
for the end of the job. So the guard asks it by itself, every few seconds. Only a JobMaster whose processor
time stands still is killed. One that is busy is left to its subtasks. How long it may stand still is a
setting of its job (`heartbeat_timeout`), which stands in the job's last report.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from typing import Any, Final

import ray

from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.master_registry import find_master
from penstock.actors.shared.node_processes import end_process, own_node, processor_times, task_on_node
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.heartbeat import Heartbeat, HeartbeatLimits, Pulse
from penstock.runtime.execution.processes import Place

logger = logging.getLogger(__name__)

#: Those of a job with default settings, until a report of the job is there.
_LIMITS: Final = HeartbeatLimits.of(JobConfig().heartbeat_timeout, JobConfig().lease_timeout)
#: Seconds for another node to kill the process.
_KILL_TIMEOUT: Final = 10.0


class ClientGuard:
    """Follows the answers of one job's JobMaster while a client waits."""

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._limits = _LIMITS
        self._heartbeat = Heartbeat(_LIMITS, time.monotonic())
        self._question: Any = None
        self._reading: tuple[Place, Any] | None = None

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return self._limits.interval

    def look(self) -> None:
        """Look at the JobMaster; blocks only while it is being killed."""
        self._take_answer()
        self._take_reading()
        pulse = self._heartbeat.look(time.monotonic(), self._limits.interval)
        if not self._heartbeat.is_suspect:
            return
        if self._question is None:
            self._ask()
        report = load_from_cluster(self._job_id)
        if report is None or report.master is None or self._has_other_limits(report):
            return
        place = Place(report.master.pid, report.master.node_id, report.master.started)
        if pulse is Pulse.HUNG:
            self._end(place)
        elif self._heartbeat.wants_reading:
            self._read(place)

    def _ask(self) -> None:
        try:
            self._question = find_master(self._job_id).answers.remote()
        except ValueError:
            self._heartbeat.heard(time.monotonic())  # there is none: nobody hangs

    def _take_answer(self) -> None:
        if self._question is None or not _is_done(self._question):
            return
        question, self._question = self._question, None
        with suppress(ray.exceptions.RayError):  # the process has answered, or Ray has said something of it
            ray.get(question)
        self._heartbeat.heard(time.monotonic())

    def _read(self, place: Place) -> None:
        self._heartbeat.ask()
        if place.node_id == own_node():
            self._heartbeat.read(processor_times([place]).get(place))
        else:
            self._reading = place, task_on_node(place.node_id, processor_times, [place])

    def _take_reading(self) -> None:
        if self._reading is None or not _is_done(self._reading[1]):
            return
        (place, answer), self._reading = self._reading, None
        try:
            self._heartbeat.read(ray.get(answer).get(place))
        except ray.exceptions.RayError as error:
            logger.warning("the processor time of the JobMaster of %s can't be read: %s", self._job_id, error)
            self._heartbeat.read(None)

    def _has_other_limits(self, report: JobReport) -> bool:
        """Whether the job gives its processes another time; the silence then counts from now on."""
        settings = report.settings
        if not settings:
            return False
        limits = HeartbeatLimits.of(float(settings["heartbeat_timeout"]), float(settings["lease_timeout"]))
        if limits == self._limits:
            return False
        self._limits = limits
        self._heartbeat = Heartbeat(limits, time.monotonic())
        return True

    def _end(self, place: Place) -> None:
        where, silence = f"pid {place.pid} on node {place.node_id[:8]}", self._heartbeat.silence
        logger.error("the JobMaster of %s (%s) hangs, it is killed: %s", self._job_id, where, silence)
        self._heartbeat = Heartbeat(self._limits, time.monotonic())
        if place.node_id == own_node():
            end_process(place)
            return
        try:
            ray.get(task_on_node(place.node_id, end_process, place), timeout=_KILL_TIMEOUT)
        except ray.exceptions.RayError as error:
            logger.warning("the JobMaster of %s can't be killed: %s", self._job_id, error)


def _is_done(reference: Any) -> bool:
    done, _ = ray.wait([reference], timeout=0)
    return bool(done)
