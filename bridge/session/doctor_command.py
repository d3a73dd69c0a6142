"""The command `penstock doctor` (entry point `penstock.commands: doctor`)."""

from __future__ import annotations

import os

from penstock.bridge.session.doctor import examine, installed_version, requirements
from penstock.runtime.errors import PenstockError


def doctor() -> None:
    """Check the versions of Ray, RayDP, Spark, Java and Arrow; exit code 1 if they don't fit."""
    findings = examine(requirements(), installed_version, os.environ)
    for finding in findings:
        print(finding)
    if not all(finding.fits for finding in findings):
        bad = ", ".join(finding.name for finding in findings if not finding.fits)
        msg = f"the Spark bridge will not work: look at {bad}. Jobs without Spark need Ray and Arrow only"
        raise PenstockError(msg)
    print("everything fits")
