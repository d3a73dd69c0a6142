"""Every benchmark runs, tiny, and writes its figures; the figures themselves mean nothing here."""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"

if str(BENCHMARKS) not in sys.path:
    sys.path.append(str(BENCHMARKS))

run_all = importlib.import_module("run_all")


def loaded(name: str) -> Any:
    """A benchmark as a module; an example may have its name."""
    place = importlib.util.spec_from_file_location(f"benchmark_{name}", BENCHMARKS / f"{name}.py")
    assert place is not None
    assert place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def run_tiny(name: str, folder: Path, said: pytest.CaptureFixture[str], *extra: str) -> dict[str, Any]:
    """Run a benchmark and give the figures that it wrote."""
    written = folder / "figures.json"
    if name in run_all.WITH_PEERS:
        extra = ("--without-peers", *extra)
    arguments = ["--json", str(written), *run_all.BENCHMARKS[name], *extra]
    module = loaded(name) if name == "columns" else importlib.import_module(name)
    assert module.main(arguments) == 0
    assert "| :---" in said.readouterr().out, f"{name} printed no table"
    figures: dict[str, Any] = json.loads(written.read_text())
    numbers = [*figures["ratios"].values(), *figures["rates"].values(), *figures["seconds"].values()]
    assert numbers, f"{name} wrote no figures"
    assert all(math.isfinite(number) and number > 0 for number in numbers), figures
    assert figures["versions"]["penstock"]
    assert figures["machine"]["cpus"] >= 1
    return figures


@pytest.mark.ray
@pytest.mark.long
@pytest.mark.usefixtures("ray_cluster")
def test_the_row_path_is_measured_beside_a_bare_loop(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("row_path", tmp_path, capsys)

    assert figures["ratios"].keys() == {
        "keyed_sum_1x1_vs_bare_loop",
        "keyed_sum_1x1_vs_bare_loop_by_processor_time",
        "chained_vs_bare_loop",
        "chained_vs_bare_loop_by_processor_time",
        "keyed_sum_of_dicts_vs_bare_loop",
        "keyed_sum_of_dicts_vs_bare_loop_by_processor_time",
        "process_of_dicts_vs_bare_loop",
        "process_of_dicts_vs_bare_loop_by_processor_time",
        "chain_of_dicts_vs_chain_of_tuples",
        "chain_of_dicts_vs_chain_of_tuples_by_processor_time",
        "memory_growth",
    }
    early, late = figures["details"]["memory"]
    assert late["records"] > early["records"] > 0


def test_stops_and_gaps_of_checkpoints_of_state_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("state", tmp_path, capsys, "--only", "snapshots", "timers", "gigabyte")

    for kind in ("numbers", "tuples", "lists", "accumulators", "values of a reduce", "windows of lists"):
        assert f"2,000 {kind} changed, longest gap" in figures["seconds"]
    for where in ("", " in RocksDB"):
        assert f"2,000 timers{where}, set and fired between two checkpoints: stopped" in figures["seconds"]
        assert any(name.endswith(f"GB{where}, recovery") for name in figures["seconds"])


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_process_function_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_tiny("state", tmp_path, capsys, "--only", "process_function")

    assert figures["rates"].keys() == {"penstock, process function 1x1", "penstock, the same in RocksDB"}


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("ray_cluster")
def test_columns_are_measured_beside_pyarrow_and_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("columns", tmp_path, capsys)

    assert figures["ratios"].keys() == {
        "keyed_sum_vs_bare_pyarrow",
        "keyed_sum_2x2_vs_bare_pyarrow",
        "columns_vs_rows",
        "columns_vs_reduce_of_rows",
        "checkpointing_cost",
        "memory_growth",
    }
    (first, *_), (last, *_) = figures["details"]["memory"][0], figures["details"]["memory"][-1]
    assert last >= first > 0


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_asynchronous_calls_are_measured_beside_bare_asyncio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("async_calls", tmp_path, capsys)

    assert figures["ratios"].keys() == {"async_ordered_vs_bare_asyncio", "async_unordered_vs_bare_asyncio"}
    assert len(figures["rates"]) == 4


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_latency_and_idle_checkpoints_are_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("latency", tmp_path, capsys)

    assert "aligned checkpoint when idle, 1x1, p50" in figures["seconds"]
    assert "record at 10,000/s, buffer timeout 5 ms, p99" in figures["seconds"]


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_cost_of_an_open_page_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_tiny("ui", tmp_path, capsys)

    ratios = {"rate_with_page_open", "processor_time_with_page_open"}
    assert figures["ratios"].keys() == ratios
    for name in ratios:
        low, high = figures["details"][f"{name}, 95 % of medians"]
        assert low <= figures["ratios"][name] <= high
    assert figures["seconds"].keys() <= {"page_of_100_vertices", "longest_task_of_an_update"}


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_time_from_a_kill_to_the_next_record_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("recovery", tmp_path, capsys)

    assert figures["seconds"].keys() == {"1 MB of state"}


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_the_start_of_a_small_job_is_measured_in_warm_and_in_new_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("start", tmp_path, capsys)

    assert figures["ratios"].keys() == {
        "second job",
        "kill to first record with standby",
        "second_job_warm_vs_new_processes",
        "kill_with_standby_vs_new_process",
    }
    assert figures["seconds"].keys() == {
        "first_job_seconds",
        "second_job_seconds",
        "second_job_in_new_processes_seconds",
        "kill_to_first_record_with_standby_seconds",
        "kill_to_first_record_in_new_process_seconds",
    }


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.timeout(600)
def test_what_is_noticed_in_bad_weather_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On nodes of its own."""
    figures = run_tiny("weather", tmp_path, capsys)

    assert figures["seconds"].keys() == importlib.import_module("weather").GOALS.keys()


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_checkpoints_under_back_pressure_are_measured_for_every_way_of_taking_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("checkpoint_under_backpressure", tmp_path, capsys)

    assert figures["ratios"].keys() == {
        "aligned_vs_unaligned_under_pressure",
        "aligned_vs_timeout_under_pressure",
    }
    in_flight = figures["details"]
    assert sum(in_flight["aligned, under pressure, bytes in flight"]) == 0
    assert sum(in_flight["unaligned, under pressure, bytes in flight"]) > 0


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_fast_branch_is_measured_beside_alignments_that_store_and_that_hold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("stored_alignment", tmp_path, capsys)

    assert figures["ratios"].keys() == {"fast_branch_store", "fast_branch_hold"}
    stored = figures["details"]["stored bytes"]
    assert sum(stored["store"]) > 0
    assert sum(stored["hold"]) == 0


def test_choices_by_key_are_measured_by_the_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_tiny("keyed_choices", tmp_path, capsys)
    assert {"dedup, 100 keys", "top_n, 10 places, 100 keys, last tenth"} <= figures["seconds"].keys()


def test_joins_are_measured_by_the_row_with_their_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("joins", tmp_path, capsys)
    assert {"inner, arrow, 4,000 rows of state", "inner, rows, 2,000 rows of state: stop"} <= figures[
        "seconds"
    ].keys()


def test_formats_are_measured_beside_their_libraries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("formats", tmp_path, capsys)
    assert {"Json to columns, a record", "pyruhvro, a record"} <= figures["seconds"].keys()
    assert "Avro to columns against its target" in figures["ratios"]


def test_tables_are_measured_beside_their_library(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = run_tiny("tables", tmp_path, capsys)
    assert figures["ratios"].keys() == {"delta_sink_vs_write_deltalake", "vs_pyiceberg_append"}


def test_databases_are_measured_beside_a_bare_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("databases", tmp_path, capsys)
    assert figures["ratios"].keys() == {"sql_sink_vs_copy_and_merge"}
    assert figures["rates"]["PostgresCdcSource"] > 0
    assert figures["seconds"]["cdc_latency_median"] <= figures["seconds"]["cdc_latency_p99"]


@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_sums_from_kafka_to_kafka_are_measured_with_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The benchmark itself compares all committed sums with expected ones."""
    only = ("--only", "Penstock, columns", "Penstock, rows", "consume loop")
    figures = run_tiny("kafka_to_kafka", tmp_path, capsys, *only)
    assert "SIGKILL to the next committed record" in figures["seconds"]


def test_a_contender_of_kafka_that_fails_is_left_out_and_its_reason_printed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = importlib.import_module("kafka_to_kafka")
    ended = importlib.import_module("peers.report").Ended
    failing = module.Contender(
        lambda sums, name, counts: [ended(name, n, failure="no table") for n in counts]
    )
    monkeypatch.setattr(module, "CONTENDERS", {"Flink SQL": failing})
    monkeypatch.setattr(module, "make_topic", lambda servers, topic: None)
    orders, sums = SimpleNamespace(write=lambda *order: None), SimpleNamespace(servers="servers")
    assert module.measured(["Flink SQL"], orders, sums, 4, 2, 2) == {}
    assert capsys.readouterr().err == "Flink SQL failed: no table\n"


def test_sums_that_are_wrong_missing_or_there_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("peers.kafka_orders")
    orders = module.Orders(event_rate=2, users=3, base_time=5_000_000)
    rows = [
        {"second": second, "user": user, "total": total} for (second, user), total in orders.sums(6).items()
    ]
    assert [row["second"] for row in rows] == [5, 5, 6, 6, 7, 7]
    wrong = [{**rows[0], "total": -1}, *rows[1:]]

    def check(found: list[dict[str, Any]], open_seconds: int = 0) -> None:
        monkeypatch.setattr(module, "read", lambda servers, topic: found)
        orders.check("servers", "sums", 6, open_seconds)

    check(rows)
    check(rows[:4], open_seconds=1)
    twice = [*rows, rows[0]]
    for bad, message in ((wrong, "wrong sums"), (rows[1:], "lacks 1 of 6"), (twice, "1 sums more than once")):
        with pytest.raises(AssertionError, match=message):
            check(bad)


@pytest.mark.long
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_queries_of_nexmark_are_measured_over_rows_and_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("nexmark", tmp_path, capsys)
    assert {"q5, rows", "q5, rows, a second of a core"} <= figures["rates"].keys()
    assert "q5, rows, start" in figures["seconds"]


def test_a_checkpoint_of_many_subtasks_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = run_tiny("coordinator_scale", tmp_path, capsys)

    assert figures["seconds"].keys() == {"100 subtasks"}


def test_run_all_replaces_a_benchmarks_part_of_the_results_and_nothing_else(tmp_path: Path) -> None:
    results, merged = tmp_path / "RESULTS.md", tmp_path / "all.json"
    results.write_text(run_all.RESULTS.read_text())

    options = ["--quick", "--only", "large_state", "--results", str(results), "--json", str(merged)]
    assert run_all.main(options) == 0

    before, after = run_all.RESULTS.read_text(), results.read_text()
    assert "| 20,000 keys" in after
    assert headings(after) == headings(before)
    assert "large_state.stopped_large_vs_small_state" in json.loads(merged.read_text())["ratios"]


def test_memory_is_measured_for_each_piece_of_work_also_after_a_larger_one() -> None:
    grown = importlib.import_module("grown_memory").grown
    large, small = 200 << 20, 40 << 20

    most = []
    for size in (large, small):
        with grown([os.getpid()]) as seen:
            held = b"x" * size
            deadline = time.monotonic() + 60
            while seen.most < size // 2 and time.monotonic() < deadline:
                time.sleep(0.01)  # it looks by itself
            del held
        most.append(seen.most)

    assert most[0] > large // 2
    assert small // 2 < most[1] < large // 2


#: A process of its own: here, pools and threads of earlier tests give back memory at any time.
FREED_AND_USED_AGAIN = """
import os
from grown_memory import grown

largest_block = bytes(31 << 20)
del largest_block  # from now on the GNU library keeps twice as much of what is freed
freed = [b"x" * 5_000 for _ in range(12_000)]
del freed
with grown([os.getpid()]) as seen:
    held = b"x" * (40 << 20)
    seen.look()
print(seen.most)
"""


def test_memory_that_was_freed_and_kept_by_the_process_is_measured_when_it_is_used_again() -> None:
    command = [sys.executable, "-c", FREED_AND_USED_AGAIN]
    printed = subprocess.run(
        command, cwd=run_all.RESULTS.parent, capture_output=True, text=True, timeout=60, check=True
    )
    assert int(printed.stdout) > 20 << 20


def test_the_interval_of_a_median_has_the_true_one_nearly_always_and_narrows_with_more_rounds() -> None:
    interval = importlib.import_module("measure").median_interval
    chance = random.Random(7)
    widths, hits = [], 0
    for rounds in [30] * 60 + [300]:
        low, high = interval([chance.gauss(1.02, 0.1) for _ in range(rounds)], draws=400)
        widths.append(high - low)
        hits += low <= 1.02 <= high

    assert hits >= 52
    assert widths[-1] < min(widths[:-1])


def test_results_have_a_place_for_every_benchmark() -> None:
    text = run_all.RESULTS.read_text()

    for name in run_all.BENCHMARKS:
        assert f"<!-- {name} -->" in text
        assert f"<!-- end of {name} -->" in text


def test_figures_without_a_place_are_an_error_that_names_the_marks() -> None:
    with pytest.raises(ValueError, match="<!-- row_path -->"):
        run_all.replace_part("no marks here", "row_path", "figures")


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_columns_are_measured_beside_spark_and_its_way_through_pandas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("raydp")
    works = "--only", "keyed_sum", "many_keys", "windows", "round_trip", "micro_batches"
    small = "--round-trip-rows", "500000", "--spark-warm-up", "0.1"
    figures = run_tiny("columns", tmp_path, capsys, *works, *small, "--spark")

    assert figures["ratios"].keys() == {
        f"{work}{shape}_vs_spark_streaming"
        for work in ("keyed_sum", "many_keys", "windows")
        for shape in ("", "_2x2")
    } | {
        "keyed_sum_vs_bare_pyarrow",
        "keyed_sum_2x2_vs_bare_pyarrow",
        "spark_round_trip_vs_pandas",
        "spark_round_trip_with_start_vs_pandas",
        "structured_streaming_vs_foreach_batch",
        "structured_streaming_with_start_vs_foreach_batch",
    }


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(900)
def test_the_way_from_spark_and_back_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("raydp")
    figures = run_tiny("spark_handoff", tmp_path, capsys)

    assert figures["ratios"].keys() == {
        "from_spark_vs_to_pandas",
        "from_spark_vs_plain_push",
        "results_vs_create_data_frame",
    }
    grew = {name.removesuffix(", driver grew, MB"): value for name, value in figures["details"].items()}
    assert grew.keys() == figures["rates"].keys(), "each way has its own, also Parquet in and out"
    assert grew["in, df.toPandas()"] > 0
