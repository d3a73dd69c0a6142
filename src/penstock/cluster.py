"""A local Ray cluster, and reports of the jobs on a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.actors.client.cluster import start_local as start_local
    from penstock.actors.client.collect import RayCollector as RayCollector
    from penstock.actors.client.job_handle import RayJobHandle as RayJobHandle
    from penstock.actors.client.jobs import KnownJob as KnownJob
    from penstock.actors.client.logs import LogLine as LogLine
    from penstock.actors.shared.edge_records import EdgeRecord as EdgeRecord
    from penstock.actors.shared.job_report import JobMasterProcess as JobMasterProcess
    from penstock.actors.shared.job_report import JobReport as JobReport
    from penstock.actors.shared.job_report import SubtaskProcess as SubtaskProcess
    from penstock.runtime.graph.executor import JobStatistics as JobStatistics
    from penstock.runtime.graph.graph_info import GraphInfo as GraphInfo
    from penstock.runtime.graph.graph_info import OperatorInfo as OperatorInfo
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
