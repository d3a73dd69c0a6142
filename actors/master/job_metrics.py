"""Counters of a job in Prometheus form, through Ray's own metrics agent."""

from __future__ import annotations

from ray.util.metrics import Counter

from penstock.runtime.graph.job_handle import JobStatistics


class JobMetrics:
    """Publishes a job's own counters, each with the tag `job`.

    Names: `penstock_job_checkpoints_completed_total`, `penstock_job_checkpoints_failed_total` and
    `penstock_job_restarts_total`.
    """

    def __init__(self, job_id: str) -> None:
        def counter(name: str, text: str) -> Counter:
            return Counter(f"penstock_job_{name}_total", description=text, tag_keys=("job",))

        self._tags = {"job": job_id}
        self._counters = {
            "completed_checkpoints": counter("checkpoints_completed", "Checkpoints completed"),
            "failed_checkpoints": counter("checkpoints_failed", "Checkpoints failed or aborted"),
            "restarts": counter("restarts", "Restarts of the job"),
        }
        self._seen: dict[str, int] = {}

    def publish(self, statistics: JobStatistics) -> None:
        """Publish what has grown since the last time."""
        for name, counter in self._counters.items():
            value = int(getattr(statistics, name))
            grown = value - self._seen.get(name, 0)
            if grown > 0:
                counter.inc(grown, self._tags)
                self._seen[name] = value
