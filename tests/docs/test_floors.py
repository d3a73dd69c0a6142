"""The picture of the floors is drawn from the code as it stands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = ROOT / "tools" / "draw_floors.py"


def test_the_picture_of_the_floors_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), "--check"], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, f"`make picture` draws it again {done.stderr}"
