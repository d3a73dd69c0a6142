"""Fetches pinned versions of the web page's libraries from npm into `actors/web/page/vendor/`.

python tools/vendor_page.py           fetches them again (needs npm)
python tools/vendor_page.py --check   compares the files with the pinned hashes (needs no npm)

Neither users nor contributors need Node: the files are committed. For a newer version, change the version
here and run the program. Review the differences, and then change the hash.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[1] / "actors" / "web" / "page" / "vendor"
LICENSES = "LICENSES.txt"


@dataclass(frozen=True)
class Library:
    """An npm package, and the files taken from it.

    Attributes:
        files: Path in the package and SHA-256, by the file's name in `vendor/`.
    """

    package: str
    version: str
    files: dict[str, tuple[str, str]]


LIBRARIES = (
    Library(
        "htm",
        "3.1.1",
        {
            "htm-preact.js": (
                "preact/standalone.module.js",
                "72284e8e9079c87817145df1110f74e8a2aa040b2fc384922e18dfcb46fc1fd7",
            )
        },
    ),
    # Part of htm's file; here for its licence, which is the same in all versions.
    Library("preact", "10.26.4", {}),
    Library(
        "@dagrejs/dagre",
        "3.1.3",
        {
            "dagre.js": (
                "dist/dagre.esm.js",
                "b0ddaf4af1417bec9bd89373a3a3987f081727d6cc6d95fc40dbf85a19bdf3b0",
            )
        },
    ),
    Library(
        "uplot",
        "1.6.32",
        {
            "uplot.js": (
                "dist/uPlot.esm.js",
                "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
            ),
            "uplot.css": (
                "dist/uPlot.min.css",
                "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
            ),
        },
    ),
)


def differing() -> list[str]:
    """Names of files that are missing, differ from the pinned hashes, or are not pinned."""
    pinned = {name: digest for library in LIBRARIES for name, (_, digest) in library.files.items()}
    found = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in VENDOR.iterdir()
        if file.name != LICENSES
    }
    return sorted(name for name in pinned.keys() | found.keys() if pinned.get(name) != found.get(name))


def fetch() -> None:
    """Write the files and their licences."""
    licenses = []
    with tempfile.TemporaryDirectory() as folder:
        for library in LIBRARIES:
            name = f"{library.package}@{library.version}"
            packed = subprocess.run(
                ["npm", "pack", "--silent", name], cwd=folder, check=True, capture_output=True, text=True
            ).stdout.strip()
            with tarfile.open(Path(folder) / packed) as archive:
                for file, (path, _) in library.files.items():
                    (VENDOR / file).write_bytes(_member(archive, path))
                licenses.append(f"=== {name}\n{_member(archive, 'LICENSE').decode()}\n")
    (VENDOR / LICENSES).write_text("".join(licenses), encoding="utf-8")


def _member(archive: tarfile.TarFile, path: str) -> bytes:
    member = archive.extractfile(f"package/{path}")
    assert member is not None
    return member.read()


def main() -> int:
    """Fetch or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare with the pinned hashes")
    if not parser.parse_args().check:
        fetch()
    wrong = differing()
    if wrong:
        print(f"not the pinned files: {', '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
