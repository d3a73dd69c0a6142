"""Texts of jobs are escaped for terminals, and no secret is on a command line."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.actors.client.logs import LogLine
from penstock.actors.command_line.web import page_that_leads_to
from penstock.runtime.error_text import escaped

ACTING = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x08", "\u202e", "\x00", "\x7f"]


@pytest.mark.parametrize("acting", ACTING)
def test_a_line_of_a_log_is_shown_and_not_obeyed(acting: str) -> None:
    line = LogLine("2026-01-02T03:04:05.678901Z", f"count{acting}", 0, "out", f"be{acting}hind\tÜ 注文")
    shown = str(line)
    assert acting not in shown
    assert shown.endswith("hind\tÜ 注文")
    assert line.text == f"be{acting}hind\tÜ 注文", "programs get what was printed"


@pytest.mark.parametrize("acting", ACTING)
def test_what_acts_is_written_out(acting: str) -> None:
    assert escaped(f"a{acting}b") == f"a{ascii(acting)[1:-1]}b"


def test_a_browser_is_given_a_page_of_this_user_and_no_token(
    tmp_path: Path,
) -> None:
    before = os.umask(0)
    try:
        page = page_that_leads_to("http://127.0.0.1:1/#token=secret&job=a", tmp_path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert "secret" not in page.as_uri()
    assert 'url=http://127.0.0.1:1/#token=secret&amp;job=a"' in page.read_text(encoding="utf-8")
