"""Every example runs, and does what it says."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from itertools import pairwise
from math import inf
from pathlib import Path

import card_fraud
import changing_rules
import model_server
import own_connector
import priced_trades
import process_function
import pytest
import sessions
import silent_machines
import top_words
import unpaid_orders
from generate_text import generate_text

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

RunExample = Callable[..., subprocess.CompletedProcess[str]]


def updates(output: Path) -> Counter[tuple[str, int]]:
    """The number of commits of each update, without what a reader of folders would not see."""
    lines = [
        json.loads(line)
        for file in output.iterdir()
        if not file.name.startswith((".", "_"))
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return Counter((line["word"], line["count"]) for line in lines)


def each_occurrence(text: Path) -> Counter[tuple[str, int]]:
    """The updates that the text must lead to, each once."""
    counts = Counter(text.read_text(encoding="utf-8").split())
    return Counter((word, n) for word, total in counts.items() for n in range(1, total + 1))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """A text of a tenth of a megabyte with some words that are not ASCII."""
    file = tmp_path / "texts" / "a.txt"
    generate_text(file, megabytes=0.1)
    with file.open("a", encoding="utf-8") as more:
        more.write("Grüße aus\tKöln  \n\n naïve café\n" * 50)
    return file


@pytest.mark.ray
@pytest.mark.long  # test_kept_demo.py runs it every time, with --keep
def test_the_demo_is_exact(run_example_alone: RunExample) -> None:
    run = run_example_alone("demo.py", "--megabytes", 0.5)

    assert run.returncode == 0, run.stdout
    for told in ("reduce(add)", "SIGKILL of count[", "recovered", "1 restart(s)", "0 missing, 0 too many"):
        assert told in run.stdout


@pytest.mark.ray
def test_word_count_counts_every_occurrence_once_although_a_process_is_killed(
    run_example: RunExample, tmp_path: Path, text: Path
) -> None:
    out = tmp_path / "out"
    options = ("--parallelism", 2, "--checkpoint-interval", 0.5, "--kill-after-checkpoints", 2)
    run = run_example("word_count.py", "--input", text, "--output", out, *options)

    assert run.returncode == 0, run.stdout
    assert "killed count[" in run.stdout
    assert "finished after 1 restart(s)" in run.stdout
    assert updates(out) == each_occurrence(text)
    assert [file.name for file in out.iterdir() if file.name.startswith((".", "_"))] == []


@pytest.mark.ray
def test_subtasks_share_a_limit_although_one_of_them_is_killed(run_example: RunExample) -> None:
    run = run_example("shared_limit.py", "--orders", 3_000, "--every", 400, "--kill")

    assert run.returncode == 0, run.stdout
    assert "3000 orders, each once, in batches up to " in run.stdout
    assert "restarts: 1" in run.stdout


@pytest.mark.ray
def test_a_query_of_nexmark_runs_from_its_folder(run_example_as_program: RunExample) -> None:
    run = run_example_as_program("nexmark", "q3", "--arrow", "--events", 20_000)

    assert run.returncode == 0, run.stdout
    assert re.search(r"^[1-9]\d* results of 20,000 events$", run.stdout, re.MULTILINE), run.stdout


@pytest.mark.ray
def test_word_count_names_what_is_missing(run_example: RunExample, tmp_path: Path) -> None:
    run = run_example("word_count.py", "--input", tmp_path / "none*.txt", "--output", tmp_path / "out")

    assert run.returncode == 1
    assert "operator 'lines'" in run.stdout
    assert f"{tmp_path}/none*.txt" in run.stdout
    assert "Traceback" not in run.stdout


@pytest.mark.ray
def test_own_connectors_move_every_row_once(run_example: RunExample, tmp_path: Path) -> None:
    database = tmp_path / "readings.db"
    run = run_example("own_connector.py", "--database", database, "--readings", 20_000)

    assert run.returncode == 0, run.stdout
    assert "20000 of 20000 readings published" in run.stdout
    with closing(sqlite3.connect(database)) as result:
        published = Counter(record for (record,) in result.execute("SELECT record FROM published"))
        readings = result.execute("SELECT sensor, celsius FROM readings").fetchall()
        assert result.execute("SELECT count(*) FROM published_staged").fetchone() == (0,)
    assert published == Counter(json.dumps(own_connector.fahrenheit(reading)) for reading in readings)


@pytest.mark.ray
def test_columns_have_the_totals_of_pyarrow(run_example: RunExample, tmp_path: Path) -> None:
    run = run_example("columns.py", "--output", tmp_path / "revenue", "--sales", 200_000)
    assert run.returncode == 0, run.stderr
    assert "50 shops; the totals are those of pyarrow" in run.stdout


@pytest.mark.ray
def test_the_process_function_raises_each_alarm_once(run_example: RunExample, tmp_path: Path) -> None:
    count = 20_000
    run = run_example("process_function.py", "--output", tmp_path / "alarms", "--readings", count)

    expected: Counter[str] = Counter()
    hot: Counter[str] = Counter()
    for sensor, celsius in map(process_function.reading, range(count)):
        hot[sensor] = hot[sensor] + 1 if celsius > 60 else 0
        if hot[sensor] == 3:
            hot[sensor] = 0
            expected[sensor] += 1
    assert run.returncode == 0, run.stdout
    assert process_function.committed_alarms(tmp_path / "alarms") == expected
    assert f"sensor-9: {expected['sensor-9']} alarms" in run.stdout


@pytest.mark.ray
def test_changing_rules_compares_each_payment_with_the_limit_of_its_time(
    run_example: RunExample, tmp_path: Path
) -> None:
    count = 6_000
    run = run_example("changing_rules.py", "--output", tmp_path / "alarms", "--payments", count)

    assert run.returncode == 0, run.stdout
    limits = [changing_rules.limit(i) for i in range(18)]
    expected = []
    for payment in map(changing_rules.payment, range(count)):
        of_country = [limit for limit in limits if limit.country == payment.country]
        limit = [limit for limit in of_country if limit.second <= payment.second][-1]
        if payment.amount > limit.amount:
            expected.append({**payment._asdict(), "limit": limit.amount})
    alarms = changing_rules.alarms_of(tmp_path / "alarms")
    assert len(expected) > 100
    assert sorted(map(str, alarms)) == sorted(map(str, expected))
    assert len({alarm["limit"] for alarm in alarms}) > 3, "the limits changed while data flowed"


@pytest.mark.ray
def test_each_silence_of_a_machine_is_one_alarm(run_example: RunExample, tmp_path: Path) -> None:
    count = 20_000
    run = run_example("silent_machines.py", "--output", tmp_path / "alarms", "--heartbeats", count)

    beats: dict[str, list[int]] = {}
    for machine, second, is_alive in map(silent_machines.heartbeat, range(count)):
        if is_alive:
            beats.setdefault(machine, []).append(second)
    ends = [[*pairwise(seconds), (seconds[-1], inf)] for seconds in beats.values()]
    expected = sorted(
        (machine, before)
        for machine, gaps in zip(beats, ends, strict=True)
        for before, after in gaps
        if after - before > silent_machines.LIMIT
    )
    assert run.returncode == 0, run.stdout
    assert silent_machines.alarms_of(tmp_path / "alarms") == expected
    assert len(expected) > 1000


@pytest.mark.ray
def test_every_review_gets_the_mood_that_the_model_server_answers(
    tmp_path: Path, run_example: RunExample
) -> None:
    count = 500
    run = run_example("model_server.py", "--output", tmp_path / "moods", "--reviews", count)
    expected = [
        {**review, "mood": model_server.mood_of(review["text"])}
        for review in map(model_server.review, range(count))
    ]
    assert model_server.moods_in(tmp_path / "moods") == expected
    moods = Counter(review["mood"] for review in expected)
    assert all(f"{mood}: {number}\n" in run.stdout for mood, number in moods.items()), run.stdout


@pytest.mark.ray
def test_each_large_payment_after_two_small_ones_is_an_alarm_unless_it_is_confirmed(
    run_example: RunExample, tmp_path: Path
) -> None:
    count = 10_000
    run = run_example("card_fraud.py", "--output", tmp_path / "alarms", "--events", count)

    of_card: dict[str, list[card_fraud.Event]] = {}
    for event in sorted(map(card_fraud.event, range(count)), key=lambda event: event.second):
        of_card.setdefault(event.card, []).append(event)
    expected = []
    for events in of_card.values():
        for at, (one, other, large) in enumerate(zip(events, events[1:], events[2:], strict=False)):
            end = one.second + card_fraud.LIMIT
            is_confirmed = any(e.amount == 0 and e.second < end for e in events[at + 3 :])
            if {one.amount, other.amount} == {1, 2} and large.amount == 900 and not is_confirmed:
                expected.append({"card": large.card, "second": large.second, "amount": large.amount})
    assert run.returncode == 0, run.stdout
    assert card_fraud.alarms_of(tmp_path / "alarms") == sorted(
        expected, key=lambda found: (str(found["card"]), found["second"])
    )
    assert len(expected) > 100
    assert f"{len(expected)} alarms for" in run.stdout


@pytest.mark.ray
def test_each_trade_gets_the_last_quote_of_the_minute_before_it(
    run_example: RunExample, tmp_path: Path
) -> None:
    count = 10_000
    run = run_example("priced_trades.py", "--output", tmp_path / "priced", "--trades", count)

    quotes: dict[str, list[tuple[int, int, int]]] = {}
    for number, quote in enumerate(map(priced_trades.quote, range(count * 4 // 10))):
        quotes.setdefault(quote["share"], []).append((quote["second"], number, quote["price"]))
    expected = Counter()
    for trade in map(priced_trades.trade, range(count)):
        ages = range(priced_trades.MAX_AGE + 1)
        near = [each for each in quotes.get(trade["share"], []) if trade["second"] - each[0] in ages]
        price = max(near)[2] if near else None
        expected[trade["share"], trade["second"], trade["count"], price] += 1
    assert run.returncode == 0, run.stdout
    rows = priced_trades.rows_of(tmp_path / "priced")
    assert Counter((r["share"], r["second"], r["count"], r["price"]) for r in rows) == expected
    priced = sum(n for (*_, price), n in expected.items() if price is not None)
    assert 0 < priced < count
    assert f"{priced} of {count} trades have a quote" in run.stdout


@pytest.mark.ray
def test_each_order_comes_out_once_with_its_payment_or_without_one_in_time(
    run_example: RunExample, tmp_path: Path
) -> None:
    count = 5_000
    run = run_example("unpaid_orders.py", "--output", tmp_path / "orders", "--orders", count)

    assert run.returncode == 0, run.stdout
    rows = sorted(unpaid_orders.rows_of(tmp_path / "orders"), key=lambda row: row["id"])
    assert rows == [
        {**unpaid_orders.order(i), **(nothing if i % 5 == 0 else unpaid_orders.payment(i))}
        for nothing in [dict.fromkeys(unpaid_orders.payment(0))]
        for i in range(count)
    ]
    assert f"{count // 5} of {count} orders were not paid in time" in run.stdout


@pytest.mark.ray
def test_each_click_is_in_one_visit_or_came_too_late(run_example: RunExample, tmp_path: Path) -> None:
    count = 20_000
    run = run_example("sessions.py", "--output", tmp_path / "visits", "--clicks", count)

    clicks = [sessions.click(i) for i in range(count)]
    late = [each for i, each in enumerate(clicks) if sessions.is_offline(i)]
    seconds: dict[str, list[int]] = {}
    for i, each in enumerate(clicks):
        if not sessions.is_offline(i):
            seconds.setdefault(each.user, []).append(each.second)
    visits = []
    for user, moments in seconds.items():
        moments.sort()
        pauses = [n for n, (one, other) in enumerate(pairwise(moments), 1) if other - one >= sessions.GAP]
        for first, end in pairwise([0, *pauses, len(moments)]):
            visits.append((user, moments[first], moments[end - 1], end - first))
    assert run.returncode == 0, run.stdout
    written = sessions.rows_of(tmp_path / "visits" / "visits")
    found = [
        (
            row["user"],
            *(datetime.fromisoformat(row[at]).timestamp() for at in ("start", "end")),
            row["clicks"],
        )
        for row in written
    ]
    assert sorted(found) == sorted(visits)
    pages = sum((Counter(row["pages"]) for row in written), Counter[str]())
    assert pages == Counter(each.page for each in clicks) - Counter(each.page for each in late)
    too_late = sessions.rows_of(tmp_path / "visits" / "late")
    assert sorted(sessions.Click(**row) for row in too_late) == sorted(late)
    assert (len(late), len(visits) > 500) == (11, True)


@pytest.mark.ray
def test_the_words_of_each_minute_are_ranked(run_example: RunExample, tmp_path: Path) -> None:
    count = 20_000
    run = run_example("top_words.py", "--output", tmp_path / "top", "--words", count, "--top", 4)

    counts: dict[datetime, Counter[str]] = {}
    for at, word in map(top_words.said, range(count)):
        minute = datetime.fromtimestamp(at // (60 * top_words.SECOND) * 60, UTC)
        counts.setdefault(minute, Counter())[word] += 1
    ranked = {
        minute: sorted(of.items(), key=lambda each: (-each[1], each[0])) for minute, of in counts.items()
    }
    assert run.returncode == 0, run.stdout
    assert top_words.tops_of(tmp_path / "top") == sorted((minute, of[:4]) for minute, of in ranked.items())
    assert "7 minutes" in run.stdout


@pytest.mark.ray
def test_a_job_starts_from_a_table_and_its_savepoint_is_read_as_one(
    run_example: RunExample, tmp_path: Path
) -> None:
    run = run_example("state_frames.py", "--folder", tmp_path / "demo", "--visits", 2_000)

    assert run.returncode == 0, run.stdout
    assert "2000 visits of yesterday and " in run.stdout
    assert "every visit was counted once" in run.stdout


def test_every_example_is_run_or_is_a_part_of_one() -> None:
    folders = Path(__file__).parent, Path(__file__).parents[1] / "on_ray"
    files = [file for folder in folders for file in folder.glob("test_*.py")]
    tests = "".join(file.read_text(encoding="utf-8") for file in files)
    imported: set[str] = set()
    for example in EXAMPLES.glob("*.py"):
        for node in ast.walk(ast.parse(example.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                imported.add(f"{node.module}.py")
    for example in EXAMPLES.glob("*.py"):
        is_run = re.search(rf'run_example(_alone|_as_program)?\(\s*"{example.name}"', tests)
        is_imported = f"from {example.stem} import" in tests or f"\nimport {example.stem} " in tests
        assert example.name in imported or is_imported or is_run, example.name
