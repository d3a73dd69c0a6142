"""Harnesses for one operator or source, and `simulate`: a whole job with failures in simulated time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.actors.shared.node_processes import kill_process as kill_process
    from penstock.runtime.io.connectors.collect_sink import InMemoryCollector as InMemoryCollector
    from penstock.runtime.io.connectors.kafka.simulated.kafka_world import KafkaRecord as KafkaRecord
    from penstock.runtime.io.connectors.kafka.simulated.kafka_world import KafkaWorld as KafkaWorld
    from penstock.runtime.testing.coordinator_harness import CoordinatorHarness as CoordinatorHarness
    from penstock.runtime.testing.harness import OperatorHarness as OperatorHarness
    from penstock.runtime.testing.harness_state import HarnessSnapshot as HarnessSnapshot
    from penstock.runtime.testing.manual_time import ManualClock as ManualClock
    from penstock.runtime.testing.simulation.run.report import Difference as Difference
    from penstock.runtime.testing.simulation.run.report import FailedRun as FailedRun
    from penstock.runtime.testing.simulation.run.report import Finding as Finding
    from penstock.runtime.testing.simulation.run.report import (
        SimulationFailedError as SimulationFailedError,
    )
    from penstock.runtime.testing.simulation.run.report import SimulationReport as SimulationReport
    from penstock.runtime.testing.simulation.run.simulate import simulate as simulate
    from penstock.runtime.testing.simulation.run.uncontrolled import Uncontrolled as Uncontrolled
    from penstock.runtime.testing.simulation.world.external import ExternalWorld as ExternalWorld
    from penstock.runtime.testing.simulation.world.external import Fate as Fate
    from penstock.runtime.testing.simulation.world.external import WorldContext as WorldContext
    from penstock.runtime.testing.source_harness import SourceHarness as SourceHarness
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
