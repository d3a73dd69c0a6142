"""Links between documents lead somewhere, and the files, names and settings that they speak of exist."""

from __future__ import annotations

import builtins
import re
from dataclasses import fields
from pathlib import Path

import pytest
from ray.util.metrics import Metric

from penstock.actors.master.job_telemetry import JobMetrics
from penstock.actors.subtask.metrics import PENDING, SPLIT_LAG, SubtaskMetrics
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import AdvancedConfig
from penstock.runtime.operators.metrics import BUILT_IN_COUNTERS, BUILT_IN_GAUGES

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PATH = re.compile(r"`((?:runtime|actors|bridge|tests|examples|benchmarks|docs)/[A-Za-z0-9_./-]*)`")
#: `NAME` stands for the name of a metric of the user's own.
_METRIC = re.compile(r"penstock_[a-z0-9_]+(?:NAME[a-z_]*)?")
_RULE = re.compile(r"^([a-z-]+):", re.MULTILINE)
#: A class, or one of its members: `Name`, `Name.member`, `Name(argument=1)`.
_CLASS = re.compile(r"`([A-Z][a-z]\w+)(?:\.(\w+))?(?:\([^`]*\))?`")
_DEFINED = re.compile(r"^\s*class (\w+)|^([A-Z]\w+)(?:: \w+)? = ", re.MULTILINE)
_MEMBER = re.compile(r"\bdef (\w+)|\b(\w+)\b(?:: [^=\n]+)?(?: =|$)|\bself\.(\w+)", re.MULTILINE)
#: Names of Python, Ray and Spark, and those of Flink that are not about checkpoints.
_OF_OTHERS = {
    "AuthClientBootstrap",
    "BufferSpiller",
    "CachedBufferBlocker",
    "Dataset",
    "Decimal",
    "DescribeTransactions",
    "EndTxn",
    "InitProducerId",
    "IntEnum",
    "JobStatus.SUSPENDED",
    "ListTransactions",
    "NettyBlockRpcServer",
    "StateTtlConfig",
    "StrEnum",
    "UnalignedCheckpointITCase",
}
_TARGET = re.compile(r"(?:`|^)make ([a-z][a-z-]+)", re.MULTILINE)


def named(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


def anchor(heading: str) -> str:
    """The anchor that a heading gets on the usual hosts of repositories."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for link in _LINK.findall(document.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        path, _, fragment = link.partition("#")
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), f"{named(document)} links to {link}"
        if fragment:
            headings = _HEADING.findall(target.read_text(encoding="utf-8"))
            assert fragment in map(anchor, headings), f"{named(document)} links to {link}"


def test_every_picture_of_the_page_is_shown_somewhere() -> None:
    shown = {
        (document.parent / link).resolve()
        for document in DOCUMENTS
        for link in _LINK.findall(document.read_text(encoding="utf-8"))
        if link.endswith(".png")
    }
    assert set((ROOT / "docs" / "pictures").iterdir()) == shown


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_files_that_are_named_exist(document: Path) -> None:
    for path in _PATH.findall(document.read_text(encoding="utf-8")):
        assert (ROOT / path).exists(), f"{named(document)} names {path}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_files_that_are_named_without_a_folder_exist(document: Path) -> None:
    known = {
        file.name
        for part in ("runtime", "actors", "examples", "benchmarks")
        for file in (ROOT / part).rglob("*")
    }
    text = document.read_text(encoding="utf-8")
    of_the_reader = set(re.findall(r"Save (?:this program )?as `(\w+\.py)`", text))
    for name in re.findall(r"`([a-z_]+\.py)`", text):
        assert name in known | of_the_reader, f"{named(document)} names {name}"


def test_classes_and_members_that_are_named_exist() -> None:
    parts = ("runtime", "actors", "bridge", "src/penstock", "examples", "benchmarks", "tests", "tools")
    source = "\n".join(
        file.read_text(encoding="utf-8") for part in parts for file in (ROOT / part).rglob("*.py")
    )
    flink = (ROOT / "tests" / "docs" / "flink_names.txt").read_text(encoding="utf-8")
    others = _OF_OTHERS | set(re.findall(r"\w+", flink)) | set(vars(builtins))
    classes = {first or second for first, second in _DEFINED.findall(source)}
    members = {name for found in _MEMBER.findall(source) for name in found}
    unknown = [
        f"{named(document)}: {name}.{member}"
        for document in DOCUMENTS
        if document.name not in ("CHANGELOG.md", "flink.md")  # they name what has changed, and Flink's
        for name, member in _CLASS.findall(document.read_text(encoding="utf-8"))
        if not {name, f"{name}.{member}"} & others
        and (name not in classes or (member and member not in members))
    ]
    assert unknown == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=named)
def test_make_targets_that_are_named_exist(document: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for target in re.findall(
        r"(?:`|^)make ([a-z][a-z-]+)", document.read_text(encoding="utf-8"), re.MULTILINE
    ):
        assert target in targets, f"{named(document)} names make {target}"


def test_metrics_are_those_of_the_code() -> None:
    documented = set(_METRIC.findall((ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")))
    published = {
        metric.info["name"]
        for publisher in (JobMetrics("0" * 32, "wordcount"), SubtaskMetrics())
        for value in vars(publisher).values()
        for metric in (value.values() if isinstance(value, dict) else [value])
        if isinstance(metric, Metric)
    }
    built_in = {f"penstock_{name}_total" for name in (*BUILT_IN_COUNTERS, "records_skipped", "dead_letters")}
    built_in |= {*(f"penstock_{name}" for name in BUILT_IN_GAUGES), *PENDING, SPLIT_LAG}
    of_users_own = set(_METRIC.findall((ROOT / "actors/subtask/metrics.py").read_text(encoding="utf-8")))
    assert documented == published | built_in | {name for name in of_users_own if "_NAME" in name}


def test_settings_of_checkpoints_are_all_told() -> None:
    text = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
    assert [name for name in Checkpointing.__dataclass_fields__ if f"`{name}`" not in text] == []
    assert "`deployment_timeout`" in (ROOT / "docs" / "running.md").read_text(encoding="utf-8")


def test_advanced_settings_are_all_told() -> None:
    pages = ("checkpoints", "failures", "running")
    text = "".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in pages)
    names = [each.name for each in fields(AdvancedConfig)]
    assert [name for name in names if not re.search(rf"`{name}[=`]", text)] == []


def test_decisions_are_numbered_without_gaps() -> None:
    files = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(file.name[:4]) for file in files] == list(range(1, len(files) + 1))
    for file in files:
        first = file.read_text(encoding="utf-8").splitlines()[0]
        assert first.startswith(f"# {int(file.name[:4])}. "), file.name
