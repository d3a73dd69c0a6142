"""A source reads only files that the job declares, whatever a snapshot names."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import FileSource
from penstock.connectors import FileInfo, UntrustedPathError
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit
from penstock.runtime.trust.paths import check_declared


def split(path: object) -> FileSplit:
    return FileSplit(path, 6, 0, 6)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("/in/a.csv", "/in/a.csv"),
        ("s3://bucket/out/", "s3://bucket/out/"),
        ("a-name-of-ones-own", "a-name-of-ones-own"),
        ("/in/b/a.csv", "/in"),
        ("/in/b/a.csv", "/in/"),
        ("/in/b/a.csv", "/in/**/*.csv"),
        ("/in/[1]/a.csv", "/in/[1]"),
        ("/a", "/"),
        ("s3://bucket/in/a.csv", "s3://bucket/in"),
        ("s3://bucket/in/a.csv", "s3://bucket/*/a.csv"),
    ],
)
def test_what_lies_in_a_declared_place_is_trusted(path: str, declared: str) -> None:
    assert check_declared(path, ["/elsewhere", declared]) == path


@pytest.mark.parametrize(
    ("path", "declared"),
    [
        ("/etc/passwd", "/in"),
        ("/in/../etc/passwd", "/in"),
        ("/in/./a", "/in"),
        ("/in//a", "/in"),
        ("/internal/a", "/in"),
        ("/in/a.csv", "/in/*.json"),
        ("in/a.csv", "/in"),
        ("a", "/"),
        ("", "/"),
        ("/in/a\0", "/in"),
        ("s3://other/in/a.csv", "s3://bucket/in"),
        ("s3://bucket/in/../secret", "s3://bucket/in"),
        ("/etc/passwd", "s3://bucket/in"),
        (b"/in/a", "/in"),
        (None, "/in"),
    ],
)
def test_what_lies_elsewhere_is_refused(path: Any, declared: str) -> None:
    with pytest.raises(UntrustedPathError, match=r"which is not in .*trust_paths=True"):
        check_declared(path, [declared])


def test_a_split_of_another_file_is_refused_and_read_only_with_consent(tmp_path, context, read_all) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("here\n")
    (tmp_path / "secret").write_text("other\n")
    strict = FileSource.text(tmp_path / "in")
    with pytest.raises(UntrustedPathError, match="secret"):
        strict.reader(context(), [split(str(tmp_path / "secret"))])
    trusting = FileSource.text(tmp_path / "in", trust_paths=True)
    reader = trusting.reader(context(), [split(str(tmp_path / "secret"))])
    assert reader.poll(10).batch.rows == ["other"]
    reader.close()


class Renaming:
    """A file system of a user's own, whose paths look like no location."""

    def find(self, pattern: str) -> list[FileInfo]:
        return [FileInfo("object-7", 6)]


def test_with_a_file_system_of_ones_own_what_it_finds_is_declared(context) -> None:
    source = FileSource.text("/in", filesystem=Renaming())  # type: ignore[arg-type]
    source.reader(context(), [split("object-7")]).close()
    with pytest.raises(UntrustedPathError, match="object-8"):
        source.reader(context(), [split("object-8")])
