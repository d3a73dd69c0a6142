"""Builds a release in `dist/`: the wheel, the sdist, the documentation, and checksums. Publishes nothing.

    make release

The version is that of `pyproject.toml`. A checkout with changes that are not committed is refused. So is a
CHANGELOG whose newest heading is not this version with a date, and a version without snapshots in
`tests/compatibility/data`. The tests of compatibility run before anything is built.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]

#: Tests that restore what released versions have written.
COMPATIBILITY: Final = ("tests/compatibility", "tests/on_ray/test_kept_savepoints.py")

#: Programs that write the data of a version, by one of the files that they write.
FIXTURES: Final = {
    "states": "make_fixtures.py",
    "values.json": "make_values.py",
    "records.json": "make_records.py",
    "ray-stopped": "make_ray_fixtures.py",
}

_HEADING: Final = re.compile(r"## (?P<version>\S+) \((?P<date>[^)]*)\)")


def version_of(root: Path) -> str:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["version"])


def refusals(root: Path, today: date) -> Iterator[str]:
    """Reasons not to build a release of this checkout."""
    version = version_of(root)
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    yield from wrong_heading(changelog, version, today)
    yield from wrong_entries(changelog)
    yield from missing_fixtures(root, version)
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    if changed:
        yield f"the checkout has changes that are not committed: {', '.join(changed[:5])}. Commit them"


def wrong_heading(changelog: list[str], version: str, today: date) -> Iterator[str]:
    newest = next((line for line in changelog if line.startswith("## ")), "no heading")
    found = _HEADING.fullmatch(newest)
    advice = f"Write `## {version} ({today})` and commit it"
    if found is None or found["version"] != version:
        yield f"CHANGELOG.md begins with `{newest}`, and pyproject.toml has version {version}. {advice}"
        return
    try:
        given = date.fromisoformat(found["date"])
    except ValueError:
        yield f"CHANGELOG.md begins with `{newest}`, which has no date. {advice}"
        return
    if given > today:
        yield f"CHANGELOG.md begins with `{newest}`, a date in the future. {advice}"


def wrong_entries(changelog: list[str]) -> Iterator[str]:
    """Errors in the newest version: entries that are not one line of whole sentences, and repeated lines."""
    seen: dict[str, int] = {}
    is_list = False
    for number, line in enumerate(changelog, 1):
        if line.startswith("## ") and seen:
            return
        is_list = is_list or line.startswith("### ")
        if not is_list or not line or line.startswith("### "):
            continue
        if not re.fullmatch(r"- \S.*[.)]", line):
            yield f"CHANGELOG.md:{number}: a change is one line `- ... .`, and this is `{line[:40]}`"
        elif line in seen:
            yield f"CHANGELOG.md:{number}: repeats line {seen[line]}. Delete one"
        seen[line] = number


def missing_fixtures(root: Path, version: str) -> Iterator[str]:
    name = "v" + "_".join(version.split(".")[:2])
    data = root / "tests" / "compatibility" / "data" / name
    for file, program in FIXTURES.items():
        if not (data / file).exists():
            yield (
                f"tests/compatibility/data/{name} lacks {file}. Run tests/compatibility/{program} {name}, "
                "and commit what it writes"
            )


def build(root: Path) -> list[Path]:
    """Test, build and return the files of the release; raise `CalledProcessError` if a step fails."""
    version, dist = version_of(root), root / "dist"
    _run(root, "pytest", "-q", *COMPATIBILITY)
    shutil.rmtree(dist, ignore_errors=True)
    _run(root, "build", "--no-isolation")
    with tempfile.TemporaryDirectory() as folder:
        site = Path(folder) / "site"
        options = ("-q", "-W", "--keep-going", "-d", f"{folder}/trees", "-b", "html")
        _run(root, "sphinx", *options, "docs", str(site))
        (site / ".buildinfo").unlink(missing_ok=True)
        with tarfile.open(dist / f"penstock-{version}-docs.tar.gz", "w:gz") as docs:
            docs.add(site, f"penstock-{version}-docs")
    files = sorted(dist.iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (dist / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return [*files, dist / "SHA256SUMS"]


def _run(root: Path, module: str, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=root, check=True)


def main(root: Path = ROOT) -> int:
    reasons = list(refusals(root, datetime.now(UTC).date()))
    if reasons:
        print("this checkout is not a release:", *reasons, sep="\n- ", file=sys.stderr)
        return 1
    try:
        files = build(root)
    except subprocess.CalledProcessError as failure:
        step = " ".join(map(str, failure.cmd[1:]))
        print(f"no release: `python {step}` has failed (see above)", file=sys.stderr)
        return 1
    print("built, and published nothing:", *files, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
