"""The sink on the page about connectors passes the tests that the page is about."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_sink_of_the_page_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "own-connectors.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "SinkTests)" in block]
    (tmp_path / "test_ledger.py").write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "not simulated", tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"\b[5-9]\d passed, 4 skipped", done.stdout), done.stdout
