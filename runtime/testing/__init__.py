"""Tests without a cluster: the operator harness, and the simulation of whole jobs.

Users import from here. `simulate` runs a job of theirs under a thousand courses of events. `OperatorHarness`
and `SourceHarness` drive one operator by hand. All run the code that runs on a cluster; time, processes,
network and storage are simulated. Nothing in the runtime imports this package.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.runtime.lazy_names import lazy_names

if TYPE_CHECKING:
    from penstock.runtime.testing.harness import OperatorHarness as OperatorHarness
    from penstock.runtime.testing.harness_snapshot import HarnessSnapshot as HarnessSnapshot
    from penstock.runtime.testing.manual_time import ManualClock as ManualClock
    from penstock.runtime.testing.simulation.user_graph.comparison import Difference as Difference
    from penstock.runtime.testing.simulation.user_graph.report import FailedRun as FailedRun
    from penstock.runtime.testing.simulation.user_graph.report import Finding as Finding
    from penstock.runtime.testing.simulation.user_graph.report import (
        SimulationFailedError as SimulationFailedError,
    )
    from penstock.runtime.testing.simulation.user_graph.report import SimulationReport as SimulationReport
    from penstock.runtime.testing.simulation.user_graph.simulate import simulate as simulate
    from penstock.runtime.testing.simulation.user_graph.uncontrolled import Uncontrolled as Uncontrolled
    from penstock.runtime.testing.source_harness import SourceHarness as SourceHarness

_HOME: Final = {
    "Difference": "simulation.user_graph.comparison",
    "FailedRun": "simulation.user_graph.report",
    "Finding": "simulation.user_graph.report",
    "HarnessSnapshot": "harness_snapshot",
    "ManualClock": "manual_time",
    "OperatorHarness": "harness",
    "SimulationFailedError": "simulation.user_graph.report",
    "SimulationReport": "simulation.user_graph.report",
    "SourceHarness": "source_harness",
    "Uncontrolled": "simulation.user_graph.uncontrolled",
    "simulate": "simulation.user_graph.simulate",
}

__getattr__, __dir__ = lazy_names(__name__, _HOME)
