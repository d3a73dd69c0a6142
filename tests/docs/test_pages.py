"""Each page is in the table of contents once, has a line in the README, and is short enough to read."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

#: Words of a page. Programs do not count: readers copy them.
LIMIT = 3_000
#: Pages that may be longer, and why.
LONG = {
    "flink": "a dictionary: readers look up one row",
    "proofs": "a register: readers look up the tests of one promise",
    "api": "written by tools/write_api.py: a row for each public name",
}

_PROGRAM = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_PAGES = sorted(page.stem for page in DOCS.glob("*.md"))


def entries(document: str) -> list[str]:
    """The pages in the tables of contents of an `.rst` page."""
    text = (DOCS / f"{document}.rst").read_text(encoding="utf-8")
    lists = re.findall(r"^\.\. toctree::\n(?:   :.*\n)*\n((?:   \S+\n)+)", text, re.MULTILINE)
    return [line.strip() for entries in lists for line in entries.splitlines()]


SECTIONS = entries("index")


def words(page: str) -> int:
    return len(_PROGRAM.sub("", (DOCS / f"{page}.md").read_text(encoding="utf-8")).split())


@pytest.mark.parametrize("page", [page for page in _PAGES if page not in LONG])
def test_a_page_has_at_most_three_thousand_words(page: str) -> None:
    assert words(page) <= LIMIT, "split it by subject"


@pytest.mark.parametrize("page", LONG)
def test_an_exception_is_still_needed(page: str) -> None:
    assert words(page) > LIMIT


def test_every_page_is_in_the_table_of_contents_once() -> None:
    found = Counter(page for section in SECTIONS for page in entries(section))
    assert [page for page in _PAGES if found[page] != 1] == []


def test_pages_for_users_come_before_those_of_the_project() -> None:
    assert SECTIONS == ["start", "guides", "operations", "reference", "project"]


def test_the_readme_has_a_line_about_every_page() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for_contributors = {"mutants", "style"}
    missing = {page for page in _PAGES if f"| [docs/{page}.md]" not in readme}
    assert missing == for_contributors
