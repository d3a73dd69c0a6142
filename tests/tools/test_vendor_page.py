"""The libraries of the page are those that were pinned."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("vendor_page", ROOT / "tools" / "vendor_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "vendor_page", module)  # its dataclasses look there
    spec.loader.exec_module(module)
    return module


def test_the_committed_files_are_the_pinned_ones(tool: ModuleType) -> None:
    assert tool.differing() == []


def test_a_changed_a_missing_and_a_foreign_file_are_named(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vendor = tmp_path / "vendor"
    shutil.copytree(tool.VENDOR, vendor)
    monkeypatch.setattr(tool, "VENDOR", vendor)
    (vendor / "uplot.js").write_text("alert(1)")
    (vendor / "dagre.js").unlink()
    (vendor / "more.js").touch()
    assert tool.differing() == ["dagre.js", "more.js", "uplot.js"]


def test_every_library_has_its_licence(tool: ModuleType) -> None:
    text = (tool.VENDOR / tool.LICENSES).read_text(encoding="utf-8")
    for library in tool.LIBRARIES:
        assert f"=== {library.package}@{library.version}\n" in text
