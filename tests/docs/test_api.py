"""The page of the public modules is what the modules say."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from door import public_values

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "api.md"


def test_the_page_is_made_from_the_modules_of_today() -> None:
    spec = importlib.util.spec_from_file_location("write_api", ROOT / "tools" / "write_api.py")
    assert spec is not None
    assert spec.loader is not None
    write_api = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(write_api)
    assert PAGE.read_text(encoding="utf-8") == write_api.page(), "run tools/write_api.py"


def test_the_page_has_every_public_name_and_no_other() -> None:
    found, module = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"## (penstock\S*)$", line):
            module = heading[1]
        elif row := re.match(r"\| `(\w+)` \|", line):
            found.append(f"{module}.{row[1]}")
    assert sorted(found) == sorted(public_values())


def test_documents_import_public_modules_only() -> None:
    """Two pages are about the inside: what is in the storage, and how Penstock is tested."""
    inside = {"snapshot-format.md", "proofs.md"}
    imports = re.compile(r"^\s*(?:from|import) penstock\.(?:runtime|actors|bridge)\b.*", re.MULTILINE)
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        if document.name not in inside:
            assert imports.findall(document.read_text(encoding="utf-8")) == [], document.name
