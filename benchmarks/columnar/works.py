"""The workloads of `columns.py` on Parquet files: sums by key and by minute, rows, checkpoints."""

from __future__ import annotations

import shutil
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
from columnar import bare_pyarrow, files, jobs, spark_streaming
from columnar.files import Files
from columnar.spark_query import Query
from columnar.work import Work
from measure import call

from penstock import StreamEnvironment

SPARK = "Spark Structured Streaming, local[2]"
ONE, TWO = "penstock, columns 1x1", "penstock, columns 2x2"

#: Maximum rows of the files on which results are compared.
_COMPARED = 4_000_000

#: Builds a job from an environment, files, and a folder for the results.
Job = Callable[[StreamEnvironment, Files, Path | None], StreamEnvironment]


class _AgainstSpark(Work):
    """A job, compared with the same query in Spark.

    Attributes:
        files_per_trigger: Maximum files in a micro-batch of Spark.
        warm_rows: Minimum rows of the warm-up.
        under_way: Maximum rows between the measured operator and the state downstream of it.
    """

    query: str
    key: Sequence[str] = ("k",)
    operator: str
    files_per_trigger: int
    warm_rows: int = 0
    under_way: int = 0

    @abstractmethod
    def files(self, name: str, rows: int) -> Files:
        """Write a folder of this name, with at most about `rows` rows."""

    @abstractmethod
    def job(self, env: StreamEnvironment, of: Files, results: Path | None = None) -> StreamEnvironment:
        """Build the job over these files; its results are dropped by default."""

    def right(self, of: Files) -> pa.Table:
        return files.sums(of.folder, self.key)

    def prepare(self) -> None:
        """Compare the results on fewer rows, then write all files."""
        few = self.files("few", min(_COMPARED, self.scale.rows // 10))
        right = self.right(few)
        for parallelism in (1, 2):
            results = self.folder / f"results-{parallelism}"
            self.job(jobs.environment(self.storage, parallelism), few, results).run(progress=False)
            files.require_equal(files.sums(results, self.key, "max", "total"), right, f"{parallelism}x")
        if self.scale.with_spark:
            results = self.folder / "results-spark"
            spark_streaming.write_results(self.query, few, self.folder, results, self.files_per_trigger)
            files.require_equal(files.sums(results, self.key, "max", "total"), right, "Spark")
        shutil.rmtree(few.folder)
        self.all = self.files("files", self.scale.rows)

    def run_round(self, number: int) -> None:
        """Run Penstock at both parallelisms, then Spark."""
        for name, parallelism in ((ONE, 1), (TWO, 2)):
            env = self.job(jobs.environment(self.storage, parallelism), self.all)
            warm_rows = self.warm_rows + self.under_way
            self.run_job(name, env, self.operator, self.all.rows, warm_rows)
        if self.scale.with_spark:
            scale = self.scale
            query = Query(
                self.query,
                "",
                str(self.folder),
                self.files_per_trigger,
                scale.spark_warm_up,
                self.warm_rows,
                scale.seconds,
            )
            seen = spark_streaming.run(query, self.all)
            if not seen.rate:
                raise RuntimeError(f"{self.all.rows:,} rows are too few for Spark to warm up: raise --rows")
            self.add(SPARK, seen.rate)
            self.notes[SPARK] = seen.in_words


class KeyedSum(_AgainstSpark):
    """Sums of 1,000 keys, compared with Spark and with one thread of pyarrow."""

    ARROW = "bare pyarrow, one thread"
    ratios = (
        ("keyed_sum_vs_spark_streaming", ONE, SPARK, "at least 3"),
        ("keyed_sum_2x2_vs_spark_streaming", TWO, SPARK, ""),
        ("keyed_sum_vs_bare_pyarrow", ONE, ARROW, "at least 0.7"),
        ("keyed_sum_2x2_vs_bare_pyarrow", TWO, ARROW, ""),
    )
    query, operator, files_per_trigger = "keyed_sum", "sums-combine", 2

    def files(self, name: str, rows: int) -> Files:
        """Write one file, and hard links to it."""
        each = min(4_000_000, rows // 2)
        return files.numbers(self.folder / name, keys=1000, rows=rows, each=each)

    def job(self, env: StreamEnvironment, of: Files, results: Path | None = None) -> StreamEnvironment:
        """Sums by key."""
        return jobs.keyed_sum(env, of, results)

    def run_round(self, number: int) -> None:
        """Run bare pyarrow first."""
        rows = int(min(self.all.rows, 1e7 * self.scale.seconds))
        self.add(self.ARROW, call(rows, lambda count: bare_pyarrow.keyed_sum(self.all, count)).rate)
        super().run_round(number)


class ManyKeys(_AgainstSpark):
    """Sums of 5 M keys, compared with Spark with its state in RocksDB; the warm-up adds all keys."""

    ratios = (
        ("many_keys_vs_spark_streaming", ONE, SPARK, "at least 2"),
        ("many_keys_2x2_vs_spark_streaming", TWO, SPARK, ""),
    )
    query, operator, files_per_trigger = "many_keys", "sums-combine", 4
    under_way = 3_000_000

    def files(self, name: str, rows: int) -> Files:
        """Write different files; each key occurs once in the first ones.

        Spark reads files by modification time, so it would read links together with their file.
        """
        most = min(rows // 2, 60_000_000)
        keys = min(5_000_000, most // 4)
        self.warm_rows = keys
        each = min(250_000, keys)
        return files.numbers(
            self.folder / name,
            keys=keys,
            rows=most,
            each=each,
            different=-(-most // each),
            all_keys_first=True,
        )

    def job(self, env: StreamEnvironment, of: Files, results: Path | None = None) -> StreamEnvironment:
        """Sums by key."""
        return jobs.keyed_sum(env, of, results)


class Windows(_AgainstSpark):
    """Sums of 1,000 keys by minutes of event time, compared with Spark with a watermark."""

    ratios = (
        ("windows_vs_spark_streaming", ONE, SPARK, "at least 3"),
        ("windows_2x2_vs_spark_streaming", TWO, SPARK, ""),
    )
    query, operator, files_per_trigger = "windows", "minutes-combine", 2
    key = ("k", "window_start")

    def files(self, name: str, rows: int) -> Files:
        """Write different files, because time advances."""
        most = min(rows // 3, 400_000_000)
        return files.moments(self.folder / name, keys=1000, rows=most, each=min(2_000_000, most // 2))

    def job(self, env: StreamEnvironment, of: Files, results: Path | None = None) -> StreamEnvironment:
        """Sums by key and minute."""
        return jobs.minute_sums(env, of, results)

    def right(self, of: Files) -> pa.Table:
        """The expected sums by key and minute."""
        return files.minute_sums(of.folder)


class AgainstRows(Work):
    """Columns compared with rows, in the same job and in one with a `reduce`."""

    ROWS, REDUCE = "penstock, the same job on rows", "penstock, reduce on rows"
    ratios = (
        ("columns_vs_rows", ONE, ROWS, "at least 10"),
        ("columns_vs_reduce_of_rows", ONE, REDUCE, ""),
    )

    def prepare(self) -> None:
        """Write the files; `KeyedSum` compares the results of columns."""
        rows = self.scale.rows
        self.all = files.numbers(self.folder / "files", keys=1000, rows=rows, each=min(4_000_000, rows // 2))

    def run_round(self, number: int) -> None:
        """Run all three jobs."""
        for name, job, operator in (
            (ONE, jobs.keyed_sum, "sums-combine"),
            (self.ROWS, jobs.rows_aggregated, "sums-combine"),
            (self.REDUCE, jobs.rows_reduced, "sums"),
        ):
            self.run_job(name, job(jobs.environment(self.storage), self.all), operator, self.all.rows)


class CheckpointingCost(AgainstRows):
    """The keyed sum with a checkpoint every second and without any; the order changes with each round."""

    WITHOUT = "penstock, columns 1x1, no checkpoints"
    ratios = (("checkpointing_cost", ONE, WITHOUT, "at least 0.95"),)

    def run_round(self, number: int) -> None:
        """Run the job with checkpoints and without."""
        turns = [(ONE, True), (self.WITHOUT, False)]
        for name, checkpoints in turns if number % 2 else reversed(turns):
            env = jobs.environment(self.storage, checkpoints=checkpoints)
            self.run_job(name, jobs.keyed_sum(env, self.all), "sums-combine", self.all.rows)
