"""Asks whether the external links of the documentation still lead somewhere.

    make docs-links

The exit code is 0 if every link works. It is 1 if a host said that a link is broken. Otherwise it is 2,
because a host did not answer. Without an internet connection no host answers, so nothing is known.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

#: The message of Sphinx about a host that has answered; others are errors of the connection.
_ANSWERED: Final = re.compile(r"\d{3} |Anchor |unauthorized")


@dataclass(frozen=True, slots=True)
class Links:
    """The links of a site; `broken` and `unreached` have a line for each place of a link.

    `silent` has the hosts that did not answer, `reached` the others.
    """

    broken: tuple[str, ...]
    unreached: tuple[str, ...]
    reached: frozenset[str]
    silent: frozenset[str]

    @property
    def exit_code(self) -> int:
        return 1 if self.broken else 2 if self.unreached else 0

    def __str__(self) -> str:
        lines = [*(f"broken: {each}" for each in self.broken)]
        if self.silent and not self.reached:
            hosts = ", ".join(sorted(self.silent))
            lines.append(f"no host answered ({hosts}): is there an internet connection? Nothing was checked")
        else:
            lines += (f"not checked, because the host did not answer: {each}" for each in self.unreached)
        if not lines:
            lines = [f"all links work; hosts: {', '.join(sorted(self.reached)) or 'none'}"]
        return "\n".join(lines)


def judged(found: Iterable[dict[str, Any]]) -> Links:
    """Sort the results of Sphinx's `linkcheck`."""
    broken, unreached, reached, silent = [], [], set(), set()
    for each in found:
        status, info, host = each["status"], each["info"], urlsplit(each["uri"]).hostname
        place = f"{each['uri']} in {each['filename']}:{each['lineno']}"
        is_silent = status == "timeout" or (status == "broken" and host and not _ANSWERED.match(info))
        if is_silent:
            unreached.append(place)
            silent.add(str(host))
        elif status == "broken":
            broken.append(f"{place} ({info or 'there is no such file'})")
        if host and not is_silent and status not in ("ignored", "unchecked"):
            reached.add(host)
    return Links(tuple(broken), tuple(unreached), frozenset(reached), frozenset(silent - reached))


def check(docs: Path, folder: Path, trees: Path) -> Links:
    """Let Sphinx follow the links of the pages in `docs`; its results go to `folder`.

    Raises:
        SystemExit: Sphinx can't read the pages.
    """
    results = folder / "output.json"
    results.unlink(missing_ok=True)
    sphinx = [sys.executable, "-m", "sphinx", "-q", "--keep-going", "-b", "linkcheck"]
    command = [*sphinx, "-d", str(trees), str(docs), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not results.exists():
        msg = f"{done.stderr}\nSphinx can't read the pages: `make docs` shows more"
        raise SystemExit(msg)
    return judged(json.loads(line) for line in results.read_text(encoding="utf-8").splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description="Follow the external links of the documentation.")
    parser.add_argument("docs", type=Path)
    parser.add_argument("folder", type=Path, help="folder for the results")
    parser.add_argument("--trees", type=Path, help="folder of the pages that Sphinx has read", required=True)
    given = parser.parse_args()
    links = check(given.docs, given.folder, given.trees)
    print(links)
    return links.exit_code


if __name__ == "__main__":
    sys.exit(main())
