"""Nodes of Ray without processes that tests don't need: each node starts in less processor time."""

from __future__ import annotations

import pytest
from ray._private.node import Node  # noqa: PLC2701 (Ray has no setting for these)


def start_only_what_jobs_need(patch: pytest.MonkeyPatch) -> None:
    """Leave out what shows logs in a driver, asks a cloud for nodes, and counts how Ray is used.

    The last one is Ray's dashboard, which starts also where no dashboard is asked for.
    """
    patch.setattr(Node, "start_log_monitor", lambda node: None)
    patch.setattr(Node, "start_monitor", lambda node: None)
    patch.setattr(Node, "start_api_server", lambda node, **options: None)
