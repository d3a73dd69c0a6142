"""The Java check of `penstock doctor`, which needs PySpark. It starts no session."""

from __future__ import annotations

import os
from collections.abc import Mapping
from importlib.util import find_spec

from penstock.actors.command_line.checks import CheckResult, CheckStatus
from penstock.bridge.session.spark_options import find_java
from penstock.runtime.errors import ConfigurationError


def java_check(environment: Mapping[str, str] = os.environ) -> CheckResult | None:
    """Return the Java runtime that Spark would use; `None` without PySpark."""
    if find_spec("pyspark") is None:
        return None
    try:
        java = find_java(environment)
    except ConfigurationError as error:
        return CheckResult("Java", CheckStatus.BROKEN, str(error))
    return CheckResult("Java", CheckStatus.OK, f"{java.version} from {java.origin}: {java.home}")
