"""Tables and texts of jobs, checkpoints and snapshots, for terminals.

Names in a snapshot or a report may come from untrusted users. Control characters in a text can move a
terminal's cursor, change its title, or reverse the text. So `escaped` makes them visible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Final

from rich.console import RenderableType
from rich.padding import Padding
from rich.style import StyleType
from rich.table import Table
from rich.text import Text

from penstock.actors.client.jobs import KnownJob, short_ids
from penstock.actors.client.progress import COLOURS
from penstock.actors.shared.job_report import HistoryEntry, JobReport, SubtaskInfo, Takeover, failure_text
from penstock.runtime.checkpoint.coordinator.history import newest_and_rare
from penstock.runtime.error_text import escaped
from penstock.runtime.io.connectors.kafka.tools import ListedTransaction, PartitionLag
from penstock.runtime.job.job_state import RescaleRecord
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointMetrics, CheckpointRecord
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.state_processor.inspection import OperatorSummary, SnapshotSummary

#: Exceptions that Python raises for a time before the year 1 or after 9999.
_NO_DATE: Final = (OverflowError, ValueError, OSError)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_COLOURS: Final = {**COLOURS, "lost": "red"}
_CHECKPOINTS_SHOWN: Final = 10
#: Maximum rows of the newest checkpoints.
_HISTORY_SHOWN: Final = 100
#: Maximum rows of older failed checkpoints, and of older savepoints.
_RARE_SHOWN: Final = 20
#: Maximum number of subtasks whose watermarks are shown separately.
_WATERMARKS_SHOWN: Final = 32


def jobs_table(known: Iterable[KnownJob]) -> Table:
    """One row per job; ids are shortened to distinct prefixes."""
    table = _table("job", "name", "state", "submitted", ">duration", ">attempt", ">restarts", ">in", ">out")
    known = list(known)
    short = short_ids(job.report.job_id for job in known)
    for job in known:
        report, statistics = job.report, job.report.statistics
        table.add_row(
            short[report.job_id],
            report.name,
            _state(job.state),
            _moment(report.submitted_at),
            _duration(report.duration),
            str(statistics.attempt),
            str(statistics.restarts),
            f"{report.records_in:,}",
            f"{report.records_out:,}",
        )
    return table


def status_view(report: JobReport) -> Iterator[RenderableType]:
    """Everything about one job, most important first."""
    yield _head(report)
    for warning in report.warnings:
        yield _text(f"warning: {warning}", style="yellow")
    for subtask in report.subtasks:
        for trouble in _troubles(subtask):
            yield _text(trouble, style="yellow")
    failure = report.failure or (report.failures[-1] if report.failures else None)
    if failure is not None:
        what = "failed because of" if report.status.value == "failed" else "last failure"
        yield from _section(what, _text(failure_text(failure.root), style="red"))
    if report.end is not None:
        yield from _section("what is left", _text("\n".join(report.end.lines())))
    yield from _section("history (UTC)", _text("\n".join(map(_history_line, report.history)) or "none yet"))
    if report.rescales:
        yield from _section("rescales (UTC)", _text("\n".join(map(_rescale_line, report.rescales))))
    yield from _section("operators (counters of this attempt)", operators_table(report))
    measured = [info.rates for info in report.subtasks if info.rates is not None]
    if measured:
        seconds = max(rates.seconds for rates in measured)
        yield _text(f"\nwork (the last {seconds:.0f} s)", style="bold")
        if report.bottleneck is not None:
            yield _indented(_text(str(report.bottleneck), style="yellow"))
        yield _indented(vertices_table(report))
    left = lag_table(report)
    if left.row_count:
        yield from _section("left to read", left)
    versions = versions_table(report)
    if versions.row_count:
        yield from _section("versions that are read (UTC)", versions)
    commits = commits_table(report)
    if commits.row_count:
        yield from _section("last commits (UTC)", commits)
    metrics = metrics_table(report)
    if metrics.row_count:
        yield from _section("the program's own metrics (this attempt, all subtasks)", metrics)
    timed = [info for info in report.subtasks if _has_event_time(info)]
    if timed:
        yield from _section("event time (UTC)", watermarks_table(timed))
    yield from _section("checkpoints", _checkpoints(report))


def _troubles(info: SubtaskInfo) -> Iterator[str]:
    process = info.process
    where = "" if process is None else f" (pid {process.pid} on node {process.node_id[:8]})"
    for trouble in (info.silence, info.long_call):
        if trouble is not None:
            yield f"{info.subtask}{where}: {trouble}"


def _history_line(entry: HistoryEntry) -> str:
    if isinstance(entry, Takeover):
        return f"{_time_of_day(entry.at)} the JobMaster died; another process took over"
    cause = f": {entry.cause}" if entry.cause else ""
    return f"{_time_of_day(entry.at)} {entry.source.value} -> {entry.target.value}{cause}"


def _rescale_line(rescale: RescaleRecord) -> str:
    changes = ", ".join(f"{vertex} {rescale.before[vertex]} -> {n}" for vertex, n in rescale.after.items())
    line = f"{_time_of_day(rescale.requested_at)} {changes}"
    if rescale.failure:
        return f"{line}: not done, {rescale.failure}"
    if rescale.ended_at is None:
        return f"{line}: in progress"
    return f"{line}: redeployed after {_duration(rescale.ended_at - rescale.requested_at)}"


def _time_of_day(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%H:%M:%S.%f")[:-3]
    except _NO_DATE:
        return f"{seconds:,.3f} s"


def operators_table(report: JobReport) -> Table:
    """One row per operator, in the order of the graph."""
    table = _table("operator", "what", "chain", ">subtasks", ">in", ">out", ">skipped", ">dead letters")
    for operator in report.operators:
        numbers = ["-"] * 4
        if (counted := report.statistics.operators.get(operator.id)) is not None:
            counts = counted.records_in, counted.records_out, counted.records_skipped, counted.dead_letters
            numbers = [f"{count:,}" for count in counts]
        table.add_row(operator.id, operator.name, operator.vertex, str(operator.parallelism), *numbers)
    return table


def vertices_table(report: JobReport) -> Table:
    """One row per chain: its highest busy and back-pressured shares of time, and sums over subtasks."""
    table = _table("chain", ">busy", ">back-pressured", ">in/s", ">out/s", ">bytes out/s", "state")
    for vertex in report.vertices:
        shares = vertex.busy_max, vertex.backpressured_max
        rates = vertex.records_in, vertex.records_out, vertex.bytes_out
        table.add_row(
            vertex.id,
            *("-" if share is None else f"{share * 100:.0f} %" for share in shares),
            *("-" if rate is None else f"{rate:,.0f}" for rate in rates),
            _bytes(vertex.state_bytes),
        )
    return table


def _bytes(size: int | None) -> str:
    return "-" if size is None else f"{size:,} B"


def lag_table(report: JobReport) -> Table:
    """One row for each source that knows its lag, with the growth of the lag in records per second."""
    table = _table("source", ">records", ">bytes", ">splits", ">growth/s")
    for operator in report.operators:
        lag = report.statistics.operators.get(operator.id, OperatorStatistics()).lag
        if lag is None:
            continue
        growths = [
            rates.lag_records
            for info in report.subtasks
            if info.rates is not None and (rates := info.rates.operators.get(operator.id)) is not None
        ]
        known = [growth for growth in growths if growth is not None]
        table.add_row(
            operator.id,
            _count(lag.records),
            _bytes(lag.bytes),
            f"{lag.splits:,}",
            f"{sum(known):+,.0f}" if known and len(known) == len(growths) else "-",
        )
    return table


def versions_table(report: JobReport) -> Table:
    """One row for each source that reads a version of a table."""
    table = _table("source", "version", "newest", ">behind", "committed")
    for operator in report.operators:
        lag = report.statistics.operators.get(operator.id, OperatorStatistics()).lag
        if lag is not None and (read := lag.version) is not None:
            at = "-" if read.committed_at is None else _time_of_day(read.committed_at)
            table.add_row(operator.id, read.version, read.newest or "-", _count(read.behind), at)
    return table


def commits_table(report: JobReport) -> Table:
    """One row for each sink that reports its commits."""
    table = _table("sink", "version", ">rows", ">files", ">checkpoint", "committed")
    for operator in report.operators:
        made = report.statistics.operators.get(operator.id, OperatorStatistics()).last_commit
        if made is not None:
            numbers = map(_count, (made.rows, made.files, made.checkpoint_id))
            table.add_row(operator.id, made.version or "-", *numbers, _time_of_day(made.at))
    return table


def _count(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


def metrics_table(report: JobReport) -> Table:
    """One row for each counter, gauge and histogram that the program or a connector defines."""
    table = _table("operator", "metric", "kind", "value")
    for operator in report.operators:
        counted = report.statistics.operators.get(operator.id, OperatorStatistics())
        for name, value in sorted(counted.counters.items()):
            table.add_row(operator.id, name, "counter", f"{value:,}")
        for name, gauge in sorted(counted.gauges.items()):
            shown = f"{gauge.total:,g}"
            if gauge.least != gauge.greatest:
                shown += f" ({gauge.least:,g} to {gauge.greatest:,g})"
            table.add_row(operator.id, name, "gauge", shown)
        for name, histogram in sorted(counted.histograms.items()):
            shares = f"median {histogram.quantile(0.5):,.3g}, 99 % up to {histogram.quantile(0.99):,.3g}"
            shown = f"values: {histogram.count:,}, {shares}, maximum {histogram.greatest:,g}"
            table.add_row(operator.id, name, "histogram", shown)
    return table


def watermarks_table(subtasks: Sequence[SubtaskInfo]) -> Table:
    """Progress of event time by subtask; above 32 subtasks, only the slowest of each vertex."""
    table = _table("subtask", "current watermark", "waits")
    if len(subtasks) > _WATERMARKS_SHOWN:
        slowest: dict[str, SubtaskInfo] = {}
        for info in sorted(subtasks, key=_reached):
            slowest.setdefault(info.subtask.vertex, info)
        subtasks = [info for info in subtasks if slowest[info.subtask.vertex] is info]
    for info in subtasks:
        counted = info.statistics
        waits = ""
        if counted is not None:
            waits = "idle" if counted.is_idle else "paused" if counted.is_paused else ""
        table.add_row(str(info.subtask), _event_time(_reached(info)), waits)
    return table


def _has_event_time(subtask: SubtaskInfo) -> bool:
    counted = subtask.statistics
    return counted is not None and (counted.current_watermark is not None or counted.is_idle)


def _reached(subtask: SubtaskInfo) -> float:
    """The subtask's watermark in microseconds; minus infinity before the first watermark."""
    counted = subtask.statistics
    known = None if counted is None else counted.current_watermark
    return -inf if known is None else known


def _event_time(micros: float) -> str:
    if micros == -inf:
        return "none yet"
    if micros == END_OF_TIME:
        return "end of time"
    try:
        return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except _NO_DATE:
        return f"{micros:,} microseconds"


def _head(report: JobReport) -> Table:
    statistics = report.statistics
    table = Table.grid(padding=(0, 2))
    table.add_row("job", _text(report.job_id, style="bold"))
    table.add_row("name", _text(report.name))
    table.add_row("state", _state(report.status.value))
    if report.restored_from is not None:
        table.add_row("restored from", _text(report.restored_from))
    table.add_row("submitted", f"{_moment(report.submitted_at)}, {_duration(report.duration)} in all")
    table.add_row("attempt", f"{statistics.attempt} (restarts: {statistics.restarts})")
    table.add_row("records", f"{report.records_in:,} in, {report.records_out:,} out")
    return table


def _checkpoints(report: JobReport) -> RenderableType:
    if report.storage is None:
        return _text("none: the job takes no checkpoints")
    statistics = report.statistics
    grid = Table.grid()
    last = "none" if statistics.last_checkpoint_id is None else str(statistics.last_checkpoint_id)
    grid.add_row(
        f"{statistics.completed_checkpoints} completed, {statistics.failed_checkpoints} failed, "
        f"last completed: {last}"
    )
    grid.add_row(_text(f"in {report.storage}"))
    if report.slow_checkpoint is not None and not report.status.is_terminal:
        grid.add_row(_text(str(report.slow_checkpoint), style="yellow"))
    if report.checkpoint_history:
        grid.add_row(_checkpoints_table(report.checkpoint_history[-_CHECKPOINTS_SHOWN:]))
    return grid


def _checkpoints_table(records: Iterable[CheckpointRecord]) -> Table:
    head = (">id", ">attempt", "kind", "status", "begun", ">duration", ">subtasks", ">size", ">in flight")
    table = _table(*head, "why it failed")
    for record in records:
        failure = "" if record.failure is None else f"{record.failure.value} {record.detail}".strip()
        table.add_row(
            str(record.checkpoint_id),
            str(record.attempt),
            record.kind.value,
            _state(record.status.value),
            _moment(record.triggered_at),
            "-" if record.duration is None else f"{record.duration:.2f} s",
            f"{record.acknowledged}/{record.subtasks}",
            _bytes(record.size),
            _bytes(record.in_flight_bytes or None),
            failure,
        )
    return table


def checkpoints_view(details: Iterable[CheckpointDetails]) -> Iterator[RenderableType]:
    """The history of checkpoints, and the subtasks' metrics of the newest completed checkpoint."""
    known = list(details)
    records = [details.record for details in known]
    yield _checkpoints_table(newest_and_rare(records, _HISTORY_SHOWN, _RARE_SHOWN))
    measured = [details for details in known if details.subtasks and details.record.size is not None]
    if measured:
        newest = measured[-1].record
        title = f"by subtask, {newest.kind.value} {newest.checkpoint_id}"
        yield from _section(title, _subtasks_table(measured[-1].subtasks))


def _subtasks_table(measured: Mapping[SubtaskId, CheckpointMetrics]) -> Table:
    stored = ("stored", "spilled") if any(taken.stored_bytes for taken in measured.values()) else ()
    table = _table("subtask", ">start delay", ">alignment", ">sync", ">async", ">written", "state", *stored)
    for subtask, taken in sorted(measured.items()):
        times = (taken.start_delay, taken.alignment_duration, taken.sync_duration, taken.async_duration)
        sizes = [taken.written_bytes, taken.full_bytes]
        if stored:
            sizes += [taken.stored_bytes, taken.spilled_bytes]
        table.add_row(str(subtask), *(f"{seconds * 1000:.1f} ms" for seconds in times), *map(_bytes, sizes))
    return table


def kafka_lag_view(
    taken: CompletedCheckpoint, lags: Sequence[PartitionLag], now: float
) -> Iterator[RenderableType]:
    """The lag of each partition behind a snapshot, and its sum."""
    table = _table("topic", ">partition", "source", ">position", ">end", ">lag", ">held back")
    for each in lags:
        numbers = (f"{number:,}" for number in (each.position, each.end, each.lag, each.held_back))
        table.add_row(each.topic, str(each.partition), each.operator_id, *numbers)
    yield table
    age = _duration(max(0.0, now - taken.completed_at))
    yield _text(
        f"\nlag: {sum(each.lag for each in lags):,} records behind {taken.kind.value} "
        f"{taken.checkpoint_id}, completed {age} ago"
    )
    if any(each.held_back for each in lags):
        yield _text("held back: committed reads wait for open transactions", style="yellow")


def transactions_table(listed: Iterable[ListedTransaction], now: float) -> Table:
    """One row per transactional id, with the subtask that an id of Penstock names."""
    table = _table(
        *("state", ">age", "job", "operator", ">attempt", ">subtask", ">number"),
        *(">producer id", ">epoch", "partitions", "transactional id"),
    )
    for each in listed:
        found, owner = each.found, each.owner
        place = ["-"] * 5
        if owner is not None:
            numbers = map(str, (owner.attempt, owner.subtask, owner.number))
            place = [owner.job_id, owner.operator_id, *numbers]
        age = "-" if found.started_at is None else _duration(max(0.0, now - found.started_at))
        partitions = ", ".join(f"{topic}[{number}]" for topic, number in sorted(found.partitions)) or "-"
        table.add_row(
            found.state,
            age,
            *place,
            str(found.producer_id),
            str(found.epoch),
            partitions,
            found.transactional_id,
        )
    return table


def snapshot_view(summary: SnapshotSummary) -> Iterator[RenderableType]:
    grid = Table.grid(padding=(0, 2))
    grid.add_row(summary.kind, _text(str(summary.checkpoint_id), style="bold"))
    grid.add_row("location", _text(summary.location))
    took = summary.completed_at - summary.triggered_at
    when = f"{_moment(summary.completed_at)}, took {took:.2f} s, in attempt {summary.attempt}"
    grid.add_row("completed", when)
    grid.add_row("state", f"{summary.size:,} B; files besides the metadata: {summary.files}")
    yield grid
    table = _table("operator", ">subtasks", ">max", ">size", ">files", "state", "kind", ">entries")
    for operator in summary.operators:
        counts = map(str, (operator.parallelism, operator.max_parallelism))
        head = [operator.operator_id, *counts, _bytes(operator.size), str(operator.files)]
        for state in operator.states or [None]:
            cells = ["-"] * 3
            if state is not None:
                kind = f"{state.kind} {state.holds}" if state.holds else state.kind
                kind = ", ".join(filter(None, (kind, state.of_type, "TTL" if state.has_ttl else "")))
                cells = [state.name, kind, f"{'' if state.is_exact else 'up to '}{state.entries:,}"]
            table.add_row(*head, *cells)
            head = [""] * len(head)
    yield _text("")
    yield table
    for operator in summary.operators:
        yield from _positions(operator)
    if summary.masters:
        yield _text("\nmaster hooks", style="bold")
        hooks = _table("hook", ">size")
        for hook in summary.masters:
            hooks.add_row(hook.identifier, _bytes(hook.size))
        yield _indented(hooks)
    if summary.by_subtask:
        yield from _section("by subtask, at the time of the snapshot", _subtasks_table(summary.by_subtask))


def _positions(operator: OperatorSummary) -> Iterator[RenderableType]:
    for state in operator.states:
        if state.values:
            yield from _section(f"positions of {operator.operator_id}", _text("\n".join(state.values)))
    saved = operator.coordinator
    if saved is not None:
        splits = "" if saved.unassigned is None else f", splits that no reader has: {saved.unassigned:,}"
        yield _text(f"\ncoordinator of {operator.operator_id}: {saved.size:,} B{splits}", style="bold")
        if saved.values:
            yield _indented(_text("\n".join(saved.values)))


class _NamesTable(Table):
    """A table whose cells may come from untrusted users."""

    def add_row(
        self, *cells: RenderableType | None, style: StyleType | None = None, end_section: bool = False
    ) -> None:
        shown = (_text(cell) if isinstance(cell, str) else cell for cell in cells)
        super().add_row(*shown, style=style, end_section=end_section)


def _table(*columns: str) -> Table:
    """A table with these columns; a `>` before the name aligns a column to the right."""
    table = _NamesTable(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        is_number = column.startswith(">")
        table.add_column(column.lstrip(">"), justify="right" if is_number else "left", overflow="fold")
    return table


def _text(text: str, style: str = "") -> Text:
    return Text(escaped(text), style=style)


def _state(state: str) -> Text:
    return _text(state, style=_COLOURS.get(state, ""))


def _section(title: str, part: RenderableType) -> Iterator[RenderableType]:
    yield _text(f"\n{title}", style="bold")
    yield _indented(part)


def _indented(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2), expand=False)


def _moment(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    except _NO_DATE:
        return f"{seconds:,.0f} s"


def _duration(seconds: float) -> str:
    if seconds < 60 or seconds == inf:
        return f"{seconds:.1f} s"
    whole = int(seconds)
    return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
