"""The settings, fixtures and checks that the tests of sources share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Final

import pytest

from penstock.runtime.operators.source import Source
from penstock.runtime.testing.connectors.checks import Guarantee, check_rows
from penstock.runtime.testing.connectors.connector_tests import ConnectorTests
from penstock.runtime.testing.connectors.outside import Outside
from penstock.runtime.testing.connectors.source_job import STEPS, SourceJob
from penstock.runtime.testing.connectors.worlds import SourceWorld

_EVERY_STEP: Final = tuple(name for name, _ in STEPS)

#: Advice for a test that has found another number of a record.
ONCE: Final = (
    "each record must be read once: `snapshot` must return the unfinished splits, each positioned right "
    "after the last record that `poll` has returned"
)


class SourceTestBase(ConnectorTests[SourceWorld]):
    """The settings of a class of tests of a source, as `SourceTests` describes them, and its jobs."""

    guarantee: ClassVar[Guarantee] = "exactly_once"
    is_bounded: ClassVar[bool] = True
    is_exclusive: ClassVar[bool] = False
    refuses_bad_records: ClassVar[bool] = False
    is_resumable: ClassVar[bool] = True
    knows_lag: ClassVar[bool] = True
    steps: ClassVar[Sequence[str]] = _EVERY_STEP
    most_polls: ClassVar[int] = 500_000

    # -- fixtures -----------------------------------------------------------------------------------------

    @pytest.fixture
    def new_world(self, outside: Outside[SourceWorld]) -> Callable[[], SourceWorld]:
        """Makes worlds with twelve records."""
        return lambda: outside.new(lambda world: world.write(self.records(12)))

    @pytest.fixture
    def world(self, new_world: Callable[[], SourceWorld]) -> SourceWorld:
        """A world with twelve records."""
        return new_world()

    @pytest.fixture
    def job(self, world: SourceWorld) -> SourceJob:
        """A job that reads the world in two subtasks."""
        return self.job_of(world)

    def job_of(self, world: SourceWorld, source: Source[Any] | None = None, **settings: Any) -> SourceJob:
        """Return a job that reads the source, by default the source of the world."""
        written = None if self.is_bounded else self.records(12)
        settings = {"written": written, "most_polls": self.most_polls, **settings}
        return SourceJob(world, source, **settings)

    def check(self, job: SourceJob, count: int = 12, advice: str = ONCE) -> None:
        """Compare the rows of the job with the first `count` records."""
        check_rows(job.rows, self.records(count), advice, self.guarantee)
