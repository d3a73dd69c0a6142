"""Writes `match_recognize.json`: random patterns, records, and their matches by Flink's MATCH_RECOGNIZE.

Run it with a Python that has PyFlink (`pip install apache-flink`, Java 17, the environment's `bin` first on
`PATH`). It needs nothing else, and nothing of Penstock. `test_match_recognize.py` compares the file with the
matcher.

    python make_match_recognize.py --patterns 40 --streams 12

Each pattern is one query over several streams of records, which are the partitions of one table. A record
has a number of one bit. So the sum of a step's records names them.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import tempfile
from pathlib import Path
from typing import Any

LETTERS = "abc"
QUANTIFIERS = ("", "", "?", "*", "+", "{2}", "{1,2}", "{2,}")
OPTIONAL = ("?", "*")
DEFAULT = Path(__file__).with_name("match_recognize.json")


def draw_pattern(draws: random.Random) -> dict[str, Any]:
    """A pattern that Flink accepts.

    Its last step is not greedy, and `?` is not reluctant. A match never skips to the first step or to an
    optional one.
    """
    steps: list[dict[str, Any]] = []
    number = draws.randrange(1, 5)
    for index in range(number):
        quantifier = draws.choice(QUANTIFIERS)
        is_last = index == number - 1
        if is_last and quantifier == "?":
            quantifier = ""
        is_reluctant = quantifier not in ("", "?", "{2}") and (is_last or draws.random() < 0.3)
        letters = "".join(sorted(draws.sample(LETTERS, draws.choice((1, 1, 2, 3)))))
        step = {"name": "ABCD"[index], "letters": letters}
        steps.append({**step, "quantifier": quantifier, "reluctant": is_reluctant})
    if all(step["quantifier"] in OPTIONAL for step in steps):
        steps[0]["quantifier"], steps[0]["reluctant"] = "", False
    skips = ["past_last", "to_next"]
    targets = [step["name"] for step in steps[1:] if step["quantifier"] not in OPTIONAL]
    skips += [f"{kind}_{name}" for name in targets for kind in ("first", "last")]
    return {"steps": steps, "within": draws.choice((None, None, 2, 4)), "skip": draws.choice(skips)}


def draw_stream(draws: random.Random) -> list[tuple[int, str]]:
    """Seconds and letters of records; no two records of a stream have the same second."""
    second, records = 0, []
    for _ in range(draws.randrange(4, 13)):
        second += draws.choice((1, 1, 1, 2, 3))
        records.append((second, draws.choice(LETTERS)))
    return records


def query(pattern: dict[str, Any]) -> str:
    """The query of a pattern: the sum of the records' numbers for each step."""
    steps, skip = pattern["steps"], pattern["skip"]
    sums = ", ".join(f"SUM({step['name']}.num) AS s{step['name']}" for step in steps)
    terms = " ".join(step["name"] + step["quantifier"] + "?" * step["reluctant"] for step in steps)
    if skip in ("past_last", "to_next"):
        after = {"past_last": "PAST LAST ROW", "to_next": "TO NEXT ROW"}[skip]
    else:
        kind, _, name = skip.partition("_")
        after = f"TO {kind.upper()} {name}"
    within = "" if pattern["within"] is None else f"WITHIN INTERVAL '{pattern['within']}' SECOND"
    conditions = ", ".join(
        f"{s['name']} AS " + " OR ".join(f"{s['name']}.letter = '{letter}'" for letter in s["letters"])
        for s in steps
    )
    return (
        f"SELECT * FROM records MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES {sums} "
        f"ONE ROW PER MATCH AFTER MATCH SKIP {after} PATTERN ({terms}) {within} DEFINE {conditions})"
    )


def matches_of(
    pattern: dict[str, Any], streams: list[list[tuple[int, str]]], table_env: Any, file: Path
) -> list[Any]:
    """The matches of each stream: the positions of the records of each step."""
    rows = [
        (index, 1 << position, letter, f"2024-01-01 00:{second // 60:02}:{second % 60:02}.000", second)
        for index, stream in enumerate(streams)
        for position, (second, letter) in enumerate(stream)
    ]
    with file.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines).writerows(row[:4] for row in sorted(rows, key=lambda row: row[4]))
    found: list[list[list[list[int]]]] = [[] for _ in streams]
    with table_env.execute_sql(query(pattern)).collect() as results:
        for index, *sums in (list(row) for row in results):
            positions = [[p for p in range(16) if (total or 0) >> p & 1] for total in sums]
            found[index].append(positions)
    return [sorted(matches) for matches in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--patterns", type=int, default=40)
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=DEFAULT)
    options = parser.parse_args()
    from pyflink.table import EnvironmentSettings, TableEnvironment

    draws = random.Random(options.seed)
    table_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table_env.get_config().set("parallelism.default", "1")
    file = Path(tempfile.mkdtemp()) / "records.csv"
    table_env.execute_sql(
        "CREATE TABLE records (k INT, num BIGINT, letter STRING, ts TIMESTAMP(3), "
        "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{file}', 'format' = 'csv')"
    )
    cases = []
    for number in range(options.patterns):
        pattern = draw_pattern(draws)
        streams = [draw_stream(draws) for _ in range(options.streams)]
        try:
            matches = matches_of(pattern, streams, table_env, file)
        except Exception as error:  # Flink refuses some patterns, each for a reason of its own
            print(f"{number}: {query(pattern)}: {str(error)[:300]}")
            continue
        cases.append({"pattern": pattern, "streams": streams, "matches": matches})
        print(f"{number}: {sum(map(len, matches))} matches")
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    options.output.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
