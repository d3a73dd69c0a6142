"""Writes `match_recognize.json.gz`: random patterns, records, and their matches by Flink's MATCH_RECOGNIZE.

Run it with a Python that has PyFlink (`pip install apache-flink`, Java 17, the environment's `bin` first on
`PATH`). It needs nothing else, and nothing of Penstock. `test_match_recognize.py` compares the file with the
matcher.

    python make_match_recognize.py --patterns 1000 --streams 12 --seed 2

Each pattern is one query over several streams of records, which are the partitions of one table. A record
has a number of one bit. So the sum of a step's records names them. A job runs the queries of several
patterns.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import random
import tempfile
from pathlib import Path
from typing import Any

LETTERS = "abc"
STEPS = "ABCD"
QUANTIFIERS = ("", "", "?", "*", "+", "{2}", "{1,2}", "{2,}")
OPTIONAL = ("?", "*")
GREEDY = ("*", "+", "{1,2}", "{2,}")
DEFAULT = Path(__file__).with_name("match_recognize.json.gz")


def draw_pattern(draws: random.Random) -> dict[str, Any]:
    """A pattern that Flink accepts.

    Its last step is not greedy, nor is one in front of an optional step, and `?` is not reluctant. A match
    never skips to a step that may be missing or the first one of the match.
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
        step = {"name": STEPS[index], "letters": letters}
        if quantifier in OPTIONAL and steps and steps[-1]["quantifier"] in GREEDY:
            steps[-1]["reluctant"] = True
        steps.append({**step, "quantifier": quantifier, "reluctant": is_reluctant})
    if all(step["quantifier"] in OPTIONAL for step in steps):
        steps[0]["quantifier"], steps[0]["reluctant"] = "", False
    skips = ["past_last", "to_next"]
    # A step may be the first one of a match when all before it are missing.
    targets = [step["name"] for step in steps if step["quantifier"] not in OPTIONAL][1:]
    skips += [f"{kind}_{name}" for name in targets for kind in ("first", "last")]
    return {"steps": steps, "within": draws.choice((None, None, 2, 4)), "skip": draws.choice(skips)}


def draw_stream(draws: random.Random) -> list[tuple[int, str]]:
    """Seconds and letters of records; no two records of a stream have the same second."""
    second, records = 0, []
    for _ in range(draws.randrange(4, 13)):
        second += draws.choice((1, 1, 1, 2, 3))
        records.append((second, draws.choice(LETTERS)))
    return records


def query(number: int, pattern: dict[str, Any]) -> str:
    """The query of a pattern: its number, and the sum of the records' numbers for each step."""
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
    columns = [f"s{name}" if index < len(steps) else "0" for index, name in enumerate(STEPS)]
    return (
        f"SELECT {number}, k, {', '.join(columns)} "
        f"FROM (SELECT * FROM records WHERE q = {number}) MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts "
        f"MEASURES {sums} ONE ROW PER MATCH AFTER MATCH SKIP {after} PATTERN ({terms}) {within} "
        f"DEFINE {conditions})"
    )


def add_matches(cases: list[dict[str, Any]], table_env: Any, file: Path) -> None:
    """Add the matches of each stream to each case: the positions of the records of each step."""
    rows = [
        (
            number,
            index,
            1 << position,
            letter,
            f"2024-01-01 00:{second // 60:02}:{second % 60:02}.000",
            second,
        )
        for number, case in enumerate(cases)
        for index, stream in enumerate(case["streams"])
        for position, (second, letter) in enumerate(stream)
    ]
    with file.open("w", newline="", encoding="utf-8") as lines:
        csv.writer(lines).writerows(row[:5] for row in sorted(rows, key=lambda row: row[5]))
    found: list[Any] = [[[] for _ in case["streams"]] for case in cases]
    queries = " UNION ALL ".join(query(number, case["pattern"]) for number, case in enumerate(cases))
    with table_env.execute_sql(queries).collect() as results:
        for number, index, *sums in (list(row) for row in results):
            steps = len(cases[number]["pattern"]["steps"])
            positions = [[p for p in range(16) if (total or 0) >> p & 1] for total in sums[:steps]]
            found[number][index].append(positions)
    for case, matches in zip(cases, found, strict=True):
        case["matches"] = [sorted(of_stream) for of_stream in matches]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--patterns", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=12)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--together", type=int, default=25, help="patterns of one job")
    parser.add_argument("--output", type=Path, default=DEFAULT)
    options = parser.parse_args()
    from pyflink.table import EnvironmentSettings, TableEnvironment

    draws = random.Random(options.seed)
    table_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table_env.get_config().set("parallelism.default", "1")
    file = Path(tempfile.mkdtemp()) / "records.csv"
    table_env.execute_sql(
        "CREATE TABLE records (q INT, k INT, num BIGINT, letter STRING, ts TIMESTAMP(3), "
        "WATERMARK FOR ts AS ts - INTERVAL '1' SECOND) "
        f"WITH ('connector' = 'filesystem', 'path' = '{file}', 'format' = 'csv')"
    )
    drawn = [
        {"pattern": draw_pattern(draws), "streams": [draw_stream(draws) for _ in range(options.streams)]}
        for _ in range(options.patterns)
    ]
    waiting = [drawn[start : start + options.together] for start in range(0, len(drawn), options.together)]
    cases: list[dict[str, Any]] = []
    while waiting:
        group = waiting.pop(0)
        try:
            add_matches(group, table_env, file)
        except Exception as error:  # Flink refuses some patterns, each for a reason of its own
            if len(group) > 1:
                middle = len(group) // 2
                waiting[:0] = [group[:middle], group[middle:]]
            else:
                print(f"refused: {query(0, group[0]['pattern'])}: {str(error)[:300]}", flush=True)
            continue
        cases += group
        matches = sum(len(of_stream) for case in cases for of_stream in case["matches"])
        print(f"{len(cases)} patterns, {matches} matches", flush=True)
        lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
        # Without a time in it, equal cases give equal bytes.
        options.output.write_bytes(gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0))


if __name__ == "__main__":
    main()
