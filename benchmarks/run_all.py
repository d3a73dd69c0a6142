"""Runs all benchmarks, and writes their output into `RESULTS.md`.

    python benchmarks/run_all.py --json results.json
    python benchmarks/run_all.py --only nexmark -- --best

Each benchmark's part of `RESULTS.md`, between two marks, is replaced; the text around it stays.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from measure import machine, options, versions

_HERE: Final = Path(__file__).resolve().parent
RESULTS: Final = _HERE / "RESULTS.md"

#: The benchmarks, with options for a short run that only shows that they work.
BENCHMARKS: Final[Mapping[str, Sequence[str]]] = {
    "row_path": ["--seconds", "0.5", "--warm-up", "0.2", "--rounds", "1", "--records", "20000"],
    "columns": [
        *("--rows", "40000000", "--seconds", "0.3", "--warm-up", "0.1", "--rounds", "1"),
        *("--memory-rows", "20000000", "--no-spark"),
    ],
    "async_calls": [
        *("--seconds", "1", "--warm-up", "0.2", "--rounds", "1", "--calls", "50"),
    ],
    "latency": ["--seconds", "2"],
    "checkpoint_under_backpressure": [
        *("--checkpoints", "2", "--aligned-checkpoints", "1", "--buffer-rows", "20", "--credits", "2"),
        *("--warm-up", "100"),
    ],
    "stored_alignment": [
        *("--seconds", "2", "--warm-up", "0.5", "--rounds", "1", "--rate", "2000"),
        *("--slow-seconds", "0.00001", "--every", "0.3"),
    ],
    "spark_handoff": ["--rows", "200000", "--rounds", "1", "--warm-up", "0"],
    "state": [
        *("--keys", "2000", "--timers", "2000", "--size", "200000", "--rounds", "1"),
        *("--seconds", "0.5", "--warm-up", "0.2"),
    ],
    "keyed_choices": ["--rows", "20000", "--batch-rows", "1000", "--most-keys", "100"],
    "nexmark": ["--only", "q5", "--rows", "10000", "--columns", "100000", "--growth", "5"],
    "joins": ["--rows", "20000", "--state", "4000", "--row-state", "2000"],
    "formats": ["--records", "200", "--rounds", "1"],
    "tables": ["--records", "2000", "--rounds", "1"],
    "databases": ["--records", "2000", "--rounds", "1", "--changes", "2000", "--seconds", "0.5"],
    "kafka_to_kafka": ["--records", "60000", "--growth", "4", "--kills", "1"],
    "large_state": ["--keys", "20000", "--changes", "100", "--rounds", "3"],
    "coordinator_scale": ["--largest", "100", "--rounds", "1"],
    "recovery": ["--largest", "1", "--kills", "1"],
    "ui": ["--seconds", "1", "--rounds", "1", "--warm-up", "0.2"],
    "start": ["--rounds", "1"],
    "weather": ["--rounds", "1"],
}


#: The benchmarks that have the option `--without-peers`.
WITH_PEERS: Final = ("row_path", "state", "nexmark", "joins", "kafka_to_kafka")

#: Ray's notices on the standard output of a program whose processes are killed.
_OF_RAY = re.compile(r"^(\x1b\[\d+m)?\(raylet\).*\n?", re.MULTILINE)


def run(name: str, arguments: Sequence[str], figures: Path) -> str:
    """Run one benchmark as a program of its own; return its output."""
    command = [sys.executable, str(_HERE / f"{name}.py"), "--json", str(figures), *arguments]
    return own_words(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def own_words(said: str) -> str:
    r"""The output of a benchmark, without Ray's notices.

    Example:
        >>> own_words("\x1b[33m(raylet)\x1b[0m A worker died\n| state |\n")
        '| state |'
    """
    return _OF_RAY.sub("", said).strip()


def replace_part(text: str, name: str, printed: str) -> str:
    r"""The text with one benchmark's part replaced.

    Raises:
        ValueError: The marks of this part are not in the text.

    Example:
        >>> replace_part("<!-- a -->old<!-- end of a -->", "a", "new")
        '<!-- a -->\nnew\n<!-- end of a -->'
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        msg = f"RESULTS.md has no place for {name}: write {begin} and {end} where its figures go"
        raise ValueError(msg)
    return f"{before}{begin}\n{printed}\n{end}{after}"


def described() -> str:
    """The date, the machine and the versions, as a sentence."""
    seen = machine()
    named = ", ".join(f"{name} {version}" for name, version in versions().items())
    on = f"{seen.cpus} CPUs ({seen.processor}), {seen.system}"
    return f"Measured on {datetime.now(UTC):%d %B %Y}, {on}; {named}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, collect, write."""
    parser = options(__doc__)
    parser.add_argument("--results", metavar="FILE", default=str(RESULTS), help="the file with the tables")
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="short runs, whose figures mean nothing")
    parser.add_argument("--without-peers", action="store_true", help="pass this to benchmarks that have it")
    parser.add_argument("arguments", nargs="*", help="options of the benchmarks, after --")
    given = parser.parse_args(arguments)
    results = Path(given.results)
    collected: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in given.only:
            print(f"== {name}", file=sys.stderr, flush=True)
            options_of = list(BENCHMARKS[name]) if given.quick else []
            if name in WITH_PEERS and given.without_peers:
                options_of.append("--without-peers")
            options_of += given.arguments
            figures = Path(folder) / f"{name}.json"
            printed = run(name, options_of, figures)
            print(printed, end="\n\n", flush=True)
            collected[name] = json.loads(figures.read_text())
            results.write_text(replace_part(results.read_text(), name, f"{printed}\n\n{described()}"))
    if given.json is not None:
        merged = {
            kind: {
                f"{name}.{key}": value
                for name, each in collected.items()
                for key, value in each[kind].items()
            }
            for kind in ("ratios", "rates", "seconds")
        }
        used = {name: number for each in collected.values() for name, number in each["versions"].items()}
        first = next(iter(collected.values()))
        record = {**merged, "versions": used, "machine": first["machine"]}
        Path(given.json).write_text(json.dumps(record, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
