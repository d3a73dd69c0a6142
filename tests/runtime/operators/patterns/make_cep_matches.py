"""Writes `cep_matches.json.gz`: random patterns with groups, records, and their matches by Flink's CEP.

Run it with a Python that has PyFlink (`pip install apache-flink`) and with a JDK 17 on the `PATH`. It needs
nothing of Penstock. `test_cep_matches.py` compares the file with the matcher.

    python make_cep_matches.py --patterns 800

Groups begin with a step that takes one record, and only the last step of a pattern is a group that may run
once more. `docs/patterns.md` says what Flink does with others.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import subprocess
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
LETTERS = "abc"
CALLS = ("next", "followed_by", "followed_by_any")
TIMES = ([2, 2], [1, 2], [1, None], [2, None])


def draw_steps(draws: random.Random, name: str, number: int, depth: int) -> list[dict[str, Any]]:
    """Steps of a pattern, or of a group within one."""
    steps: list[dict[str, Any]] = []
    for index in range(number):
        is_head, is_last = name != "s" and index == 0, name == "s" and index == number - 1
        step: dict[str, Any] = {
            "name": f"{name}{index}",
            "call": draws.choice(CALLS) if index else "begin",
            "times": None if is_head or draws.random() < 0.5 else draws.choice(TIMES),
            "inner": draws.choice(("relaxed", "consecutive", "combinations")),
        }
        if depth and not is_head and draws.random() < 0.35:
            if step["times"] and not is_last:
                step["times"] = [2, 2]
            step["members"] = draw_steps(draws, f"{step['name']}_", draws.randrange(1, 3), depth - 1)
        else:
            step["letters"] = "".join(sorted(draws.sample(LETTERS, draws.choice((1, 1, 2)))))
        steps.append(step)
    return steps


def matches_of(cases: list[dict[str, Any]]) -> list[Any]:
    import pyflink

    jars = str(Path(pyflink.__file__).parent / "lib" / "*")
    folder = Path(tempfile.mkdtemp())
    subprocess.run(["javac", "-nowarn", "-cp", jars, "-d", folder, HERE / "CepMatches.java"], check=True)
    (folder / "in.json").write_text(json.dumps(cases))
    call = ["java", "-cp", f"{jars}:{folder}", "CepMatches", folder / "in.json", folder / "out.json"]
    subprocess.run(call, check=True)
    found: list[Any] = json.loads((folder / "out.json").read_text())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--patterns", type=int, default=800)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draws = random.Random(options.seed)
    cases = [
        {
            "steps": draw_steps(draws, "s", draws.randrange(1, 4), 2),
            "streams": ["".join(draws.choices(LETTERS, k=draws.randrange(3, 8))) for _ in range(6)],
        }
        for _ in range(options.patterns)
    ]
    for case, found in zip(cases, matches_of(cases), strict=True):
        case["matches"] = found["matches"]
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    # Without a time in it, equal cases give equal bytes.
    packed = gzip.compress(f"[\n{lines}\n]\n".encode(), mtime=0)
    (HERE / "cep_matches.json.gz").write_bytes(packed)


if __name__ == "__main__":
    main()
