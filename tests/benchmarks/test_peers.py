"""Other systems, beside which benchmarks measure: their environments, their rates, and their results.

Each system gives the results of Nexmark's queries and of the interval join that DuckDB gives.
`tests/examples/nexmark` compares Penstock's with the same. Without the environment that `make peers` makes, a
system is left out.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

_ROOT = Path(__file__).resolve().parents[2]

for folder in ("benchmarks", "examples/nexmark", "tests/examples/nexmark"):
    if str(_ROOT / folder) not in sys.path:
        sys.path.append(str(_ROOT / folder))

batch_results: Any = importlib.import_module("batch_results")
comparison: Any = importlib.import_module("peers.comparison")
contenders: Any = importlib.import_module("peers.contenders")
environments: Any = importlib.import_module("peers.environments")
events: Any = importlib.import_module("nexmark_events")
interval_join: Any = importlib.import_module("peers.interval_join")
programs: Any = importlib.import_module("peers.programs")
report: Any = importlib.import_module("peers.report")

Ended: Any = report.Ended

COUNT = 6_000

#: An event each three milliseconds, so that no two have the same time, and sessions end.
CONFIG = events.NexmarkConfig(
    seed=3, event_rate=1000 / 3, active_people=40, in_flight_auctions=30, hot_auction_ratio=3, persons=3
)

needs_environment = [pytest.mark.long, pytest.mark.spark, pytest.mark.timeout(1_200)]


def test_a_rate_leaves_out_what_both_runs_have() -> None:
    rate = comparison.rate_of(Ended("q", 1_000, 12.0, 9.0), Ended("q", 5_000, 14.0, 13.0))

    assert (rate.rate, rate.by_core, rate.start) == (2_000, 1_000, 11.5)


def test_runs_that_hardly_differ_have_no_rate() -> None:
    rate = comparison.rate_of(Ended("q", 1_000, 12.0, 9.0), Ended("q", 5_000, 12.1, 9.0))

    assert rate.shown() == ["1,000 and 5,000", "too short", "too short", ""]


def test_a_query_that_a_system_can_not_run_has_its_reason_and_no_rate() -> None:
    ended = [Ended("q4", 1, failure="no such join"), Ended("q0", 1, 1.0, 1.0), Ended("q0", 3, 2.0, 3.0)]

    assert comparison.failures_of(ended) == {"q4": "no such join"}
    assert list(comparison.rates_of(ended)) == ["q0"]


def test_what_a_program_says_is_found_between_its_other_lines(capsys: pytest.CaptureFixture[str]) -> None:
    ended = Ended("q0", 3, 1.5, 2.5, rows=[{"price": 1}])
    print("WARNING: something else")
    ended.say()

    assert list(report.said(capsys.readouterr().out)) == [ended]


#: A peer that ends its process in q1, and never ends q2.
PEER = """
import json, os, sys, threading
from report import Ended
for query, count in json.loads(sys.argv[1])["jobs"]:
    if query == "q1":
        print("q1 is too much", file=sys.stderr, flush=True)
        os._exit(3)
    if query == "q2":
        threading.Event().wait()
    Ended(query, count, 1.0, 1.0).say()
"""


def test_a_peer_that_dies_or_hangs_costs_the_figures_of_one_query(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = tmp_path / "peer.py"
    peer.write_text(PEER)
    monkeypatch.setattr(programs, "PATIENCE", 3.0)

    ended = programs.run(
        Path(sys.executable), str(peer), {"jobs": [(q, n) for q in ("q0", "q1", "q2", "q3") for n in (1, 3)]}
    )

    assert [(each.query, each.count) for each in ended if each.failure is None] == [
        *(("q0", 1), ("q0", 3), ("q3", 1), ("q3", 3))
    ]
    failures = comparison.failures_of(ended)
    assert "ended with 3" in failures["q1"]
    assert "q1 is too much" in failures["q1"]
    assert "reported nothing for 3 s" in failures["q2"]


def test_a_peer_that_never_begins_is_an_error_with_its_output(tmp_path: Path) -> None:
    peer = tmp_path / "peer.py"
    peer.write_text("import no_such_module")

    with pytest.raises(RuntimeError, match=r"ended with 1(.|\n)*No module named 'no_such_module'"):
        programs.run(Path(sys.executable), str(peer), {"jobs": [("q0", 1)]})


def test_an_installer_that_fails_is_quoted_after_what_it_was_to_do() -> None:
    installer = [sys.executable, "-c", "print('no such package'); raise SystemExit(1)"]

    with pytest.raises(environments.MissingPeer, match=r"could not install flink(.|\n)*no such package"):
        environments._run("could not install flink: PyPI must be reachable", *installer)


def test_jars_without_maven_say_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(environments.MissingPeer, match=r"flink-sql-connector-kafka.*install Maven"):
        environments.prepare_jars("flink")


@pytest.mark.parametrize(
    "system",
    [
        pytest.param(system, marks=needs_environment if system == "Spark" else needs_environment[::2])
        for system in contenders.SYSTEMS
    ],
)
def test_a_system_gives_the_results_of_the_queries(system: str, tmp_path: Path) -> None:
    skip_without(system)
    queries = [query for query in contenders.QUERIES[system] if query != "source"]
    source = contenders.Nexmark(CONFIG, tmp_path, 1.0)

    ended = contenders.SYSTEMS[system](source, [(query, COUNT) for query in queries], collect=True)

    assert comparison.failures_of(ended) == {}
    assert [each.query for each in ended] == queries
    for each in ended:
        fields = each.rows[0].keys()  # Bytewax has no times of sessions
        expected = batch_results.results(each.query, CONFIG, COUNT)
        # Spark has events with ids of -1 at the end, so that windows end.
        found = [row for row in each.rows if -1 not in row.values()]
        assert counted(found) == counted({name: row[name] for name in fields} for row in expected)


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_flink_and_spark_give_the_rows_of_the_interval_join(tmp_path: Path) -> None:
    skip_without("PyFlink SQL")
    band = interval_join.Band.one_match(100)
    count = 12_000
    lefts, rights = (pa.Table.from_batches([band.side(name, 0, count // 2)]) for name in ("lefts", "rights"))
    with duckdb.connect() as connection:
        connection.register("lefts", lefts)
        connection.register("rights", rights)
        expected = connection.sql(
            "SELECT l.key, l.v, r.w FROM lefts l JOIN rights r ON l.key = r.key "
            "AND abs(epoch_ms(l.ts) - epoch_ms(r.ts)) <= 10000"
        ).to_arrow_table()

    for run in (band.flink, band.spark):
        (ended,) = run([("join", count)], tmp_path, collect=True)
        assert ended.failure is None
        assert counted(ended.rows) == counted(expected.to_pylist())


def counted(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(row, default=report.plain, sort_keys=True) for row in rows)


def skip_without(system: str) -> None:
    environment = {"PyFlink SQL": "flink", "Bytewax": "bytewax", "Klein": "klein"}.get(system)
    if environment is None:
        pytest.importorskip("pyspark")
    elif not environments.python_of(environment).exists():
        pytest.skip(f"make peers PEERS={environment} makes its environment")
