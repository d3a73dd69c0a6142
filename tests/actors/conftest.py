"""No cluster for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def no_cluster_starts_by_itself() -> Iterator[None]:
    """A call that reaches the real Ray fails. By default Ray would start a cluster in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ray._private.auto_init_hook.enable_auto_connect", False)
        yield
