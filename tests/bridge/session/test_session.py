"""What is asked of a Spark session, as far as it is refused before anything starts."""

from __future__ import annotations

import pytest

from penstock import bridge
from penstock.runtime import ConfigurationError


@pytest.mark.parametrize("wrong", [{"executors": 0}, {"cores": -1}, {"app_name": " "}, {"executors": True}])
def test_arguments_that_can_not_be_meant_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError):
        bridge.spark_session(**wrong)  # type: ignore[arg-type]
