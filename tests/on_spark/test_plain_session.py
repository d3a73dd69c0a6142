"""A program whose Spark session is a plain one of this machine."""

from __future__ import annotations

from pathlib import Path

from pipelines.programs import run_program


def test_a_plain_session_gives_rows_and_has_results_without_raydp(tmp_path: Path) -> None:
    said = run_program("plain_session.py", tmp_path)
    assert "taken as it is: True local[2] False" in said, said
    assert "same types: True" in said
    assert "rows: 1000\n" in said
    assert "lost or changed: 0" in said
    assert "refused: Spark did not start on Ray: a node of the cluster has no `java` on its PATH" in said
    assert "outlived the cluster: 1000" in said, "the plain session is none of the refused one's business"
    assert "told: to_spark: the Spark session is stopped" in said
