"""Replays conformance cases against the real runtime.

    python tests/conformance/replay.py tests/conformance/data/aligner.json ...

Each file is one suite. The module in `drivers/` that names a suite in its `SUITES` replays it. Its function
`replay(suite, case) -> list[str]` returns the differences; an empty list means that the case passes. Its
optional `tests_product(case)` is false for cases that test only the driver. Prints one line for each case,
and the totals without such cases. The exit code is 0 only if every case of every file passes.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
for folder in (str(HERE), str(HERE.parent)):
    if folder not in sys.path:
        sys.path.append(folder)

Driver = Callable[[str, dict[str, Any]], list[str]]


def find_drivers() -> dict[str, Driver]:
    """Every suite that can be replayed, with its driver."""
    drivers: dict[str, Driver] = {}
    for found in pkgutil.iter_modules([str(HERE / "drivers")]):
        module = importlib.import_module(f"drivers.{found.name}")
        for suite in getattr(module, "SUITES", ()):
            if suite in drivers:
                msg = (
                    f"two drivers replay the suite {suite!r}: {drivers[suite].__module__}, {module.__name__}"
                )
                raise RuntimeError(msg)
            drivers[suite] = module.replay
    return drivers


def tests_product(suite: str, case: dict[str, Any], drivers: dict[str, Driver]) -> bool:
    """Whether the product answers a case, and not only helpers of the driver."""
    driver = drivers.get(suite)
    module = sys.modules[driver.__module__] if driver is not None else None
    answers: Callable[[dict[str, Any]], bool] | None = getattr(module, "tests_product", None)
    return answers is None or answers(case)


def load_suite(path: Path) -> dict[str, Any]:
    """One suite: its `suite` name and its `cases`."""
    suite: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if suite.get("schema_version") != 1 or not suite.get("cases"):
        msg = f"{path} is no suite of schema version 1 with cases"
        raise ValueError(msg)
    return suite


def replay_case(suite: str, case: dict[str, Any], drivers: dict[str, Driver]) -> list[str]:
    """The differences from the case; an unexpected exception is one, too."""
    if suite not in drivers:
        return [f"no driver replays the suite {suite!r}"]
    try:
        return drivers[suite](suite, case)
    except Exception:
        return [traceback.format_exc().strip()]


def replay_file(path: Path, drivers: dict[str, Driver]) -> Iterator[tuple[str, list[str], bool]]:
    """Replay every case of a file: its full name, what differs, and whether it tests the product."""
    suite = load_suite(path)
    for case in suite["cases"]:
        differences = replay_case(suite["suite"], case, drivers)
        yield f"{suite['suite']}/{case['name']}", differences, tests_product(suite["suite"], case, drivers)


def main(arguments: list[str]) -> int:
    """Replay all files; 0 when every case passes."""
    if not arguments:
        print("usage: python tests/conformance/replay.py FILE...", file=sys.stderr)
        return 2
    drivers = find_drivers()
    passed = failed = of_drivers = 0
    for argument in arguments:
        try:
            for name, differences, of_product in replay_file(Path(argument), drivers):
                failed += bool(differences)
                passed += of_product and not differences
                of_drivers += not of_product and not differences
                outcome = "FAIL" if differences else "ok" if of_product else "ok (driver only)"
                print(f"{outcome} {name}" + "".join(f"\n     {d}" for d in differences))
        except (OSError, ValueError) as error:
            print(f"FAIL {argument}: {error}")
            failed += 1
    if of_drivers:
        print(f"cases that test only the driver, not counted: {of_drivers}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
