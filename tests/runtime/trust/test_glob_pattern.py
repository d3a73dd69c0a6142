"""Rule: a pattern finds the same names in an object store as Python's `glob` finds on disk."""

from __future__ import annotations

import glob
import warnings
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.trust.paths import compile_glob

NAMES = (
    "a",
    "b",
    "A",
    "ab",
    "-",
    "^",
    "!",
    "]",
    "[",
    "[]",
    "\\",
    "&",
    "~",
    "|",
    ".h",
    "\u00e4",
    "a\u0308",
    "x y",
)
PARTS = ("a", "b", "A", "[", "]", "!", "^", "-", "*", "?", "\\", "&&", "~~", "||", "--", "\u00e4", ".")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    for name in NAMES:
        (folder / name).touch()
    return folder


@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=7).map("".join))
@example("[^a]")
@example("[b-a]")
@example("[]")
@example("[!]")
@example("[]a]")
@example("[[]")
def test_a_pattern_finds_what_pythons_glob_finds(folder: Path, pattern: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        matches = compile_glob.__wrapped__(pattern).fullmatch
    if glob.has_magic(pattern):
        assert {name for name in NAMES if matches(name)} == set(glob.glob(pattern, root_dir=folder))
