"""Keys of S3, from moto's server: those that look like patterns, and those that obstore can't hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from enumerated_job import EnumeratedJob

from penstock import ConnectorError, FileSource
from penstock.files import FolderWatch

KEYS = ["a.txt", "[1].txt", "b[2]/c?.txt", "d*.txt", "e#f%20g.txt", "ü ~.txt", "{x}.txt", "year=2020/h.txt"]
CONTROL = ["tab\x01.txt", "fold\x02er/a\tb.txt"]
UNREADABLE = ["x//y.txt", "./z.txt", "up/../w.txt"]
OPTIONS = {"region": "us-east-1", "access_key_id": "x", "secret_access_key": "y", "allow_http": "true"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="moto's server is in the extra `dev`")
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def put(endpoint: str) -> Callable[..., str]:
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="y",
    )

    def store(bucket: str, *keys: str) -> str:
        client.create_bucket(Bucket=bucket)
        for key in keys:
            client.put_object(Bucket=bucket, Key=key, Body=b"" if key.endswith("/") else key.encode())
        return f"s3://{bucket}"

    return store


@pytest.fixture
def text(endpoint: str) -> Callable[[str], FileSource[str]]:
    options = {**OPTIONS, "endpoint": endpoint}
    return lambda location: FileSource.text(location, partitioning=None, storage_options=options)


def test_a_key_that_looks_like_a_pattern_is_the_key(put, text, read_all):
    bucket = put("patterns", *(f"in/{key}" for key in KEYS))
    assert sorted(read_all(text(f"{bucket}/in")).rows) == sorted(f"in/{key}" for key in KEYS)
    for key in KEYS:
        assert read_all(text(f"{bucket}/in/{key}")).rows == [f"in/{key}"]
    assert read_all(text(f"{bucket}/in/*.txt")).rows == sorted(f"in/{key}" for key in KEYS if "/" not in key)


def test_objects_that_come_to_a_watched_folder_are_read_and_moved_to_the_archive(put, endpoint):
    bucket = put("watched", "in/day=1/a", "in/_hidden", "in/folder/")
    watch = FolderWatch(10, clean_source="archive", archive_dir=f"{bucket}/old")
    options = {**OPTIONS, "endpoint": endpoint}
    source = FileSource.text(f"{bucket}/in", partitioning="hive", storage_options=options, watch=watch)
    job = EnumeratedJob(source)
    assert job.read_on() == [{"value": "in/day=1/a", "day": 1}]
    put("watched", "in/day=2/b", "in/day=2/c")
    assert sorted(row["value"] for row in job.read_on()) == ["in/day=2/b", "in/day=2/c"]
    job.checkpoint()
    job.read_on()
    everything = FileSource.text(bucket, partitioning=None, storage_options=options).splits(1)
    keys = sorted(split.path.removeprefix(f"{bucket}/") for split in everything)
    assert keys == ["old/day=1/a", "old/day=2/b", "old/day=2/c"]


def test_a_watched_folder_with_an_odd_key_is_read_once_and_cleaned_up(put, endpoint, caplog):
    """Arrow lists the folder when the odd key has come, and knows the same times as obstore."""
    bucket = put("watched-odd", "in/a")
    options = {**OPTIONS, "endpoint": endpoint}
    watch = FolderWatch(10, clean_source="delete")
    job = EnumeratedJob(FileSource.text(f"{bucket}/in", storage_options=options, watch=watch))
    assert job.read_on(10) == ["in/a"]
    put("watched-odd", "in/x//y", "in/c")
    assert job.read_on(10) == ["in/c"]
    assert not [record for record in caplog.records if "changed after the read" in record.message]
    job.checkpoint()
    assert job.read_on(10) == []
    system = FileSource.text(bucket, storage_options=options)._file_systems()(bucket)
    assert [info.path for info in system.find(f"{bucket}/in")] == [f"{bucket}/in/x//y"]


@pytest.mark.parametrize("folder", ["in", ""])
def test_keys_with_control_characters_are_read(put, text, read_all, folder):
    bucket = put(f"control-{folder or 'top'}", *(f"in/{key}" for key in [*KEYS, *CONTROL]))
    source = text(f"{bucket}/{folder}")
    assert sorted(read_all(source).rows) == sorted(f"in/{key}" for key in [*KEYS, *CONTROL])
    assert list(source.splits(1).warnings) == []
    for key in CONTROL:
        assert read_all(text(f"{bucket}/in/{key}")).rows == [f"in/{key}"]
    assert read_all(text(f"{bucket}/in/t*.txt")).rows == ["in/tab\x01.txt"]
    assert read_all(text(f"{bucket}/in/fold\x02er")).rows == ["in/fold\x02er/a\tb.txt"]


@pytest.mark.parametrize("folder", ["in", ""])
def test_unreadable_keys_are_left_out_by_name_and_the_others_read(put, text, read_all, folder):
    bucket = put(f"odd-{folder or 'top'}", *(f"in/{key}" for key in [*KEYS, *UNREADABLE]), "in/w.txt")
    source = text(f"{bucket}/{folder}")
    assert sorted(read_all(source).rows) == sorted([*(f"in/{key}" for key in KEYS), "in/w.txt"])
    (notice,) = source.splits(1).warnings
    assert f"{len(UNREADABLE)} files are left out" in notice
    assert "copy the object to another key" in notice
    source = text(f"{bucket}/in/year=*/*.txt")
    assert read_all(source).rows == ["in/year=2020/h.txt"]
    assert list(source.splits(1).warnings) == []


def test_an_odd_key_behind_the_first_page_doubles_no_name(put, text):
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends

    bucket = put("pages", "in/x//y.txt")
    in_server = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
    for index in range(1001):  # by requests they would take half a minute
        in_server.put_object("pages", f"in/{index:04}.txt", b"")
    found = text(bucket)._file_systems()(bucket).find(f"{bucket}/in")
    assert len(found) == 1002
    assert len({info.path for info in found}) == 1002


@pytest.mark.parametrize("key", UNREADABLE)
def test_an_unreadable_key_that_the_program_names_is_refused(put, text, read_all, key):
    bucket = put("named", f"in/{key}", "in/a.txt")
    with pytest.raises(ConnectorError, match="copy the object to another key"):
        read_all(text(f"{bucket}/in/{key}"))


def test_a_slash_at_the_beginning_of_a_key_belongs_to_it(put, text, read_all):
    bucket = put("leading", "/a.txt", "a.txt")
    assert read_all(text(f"{bucket}/a.txt")).rows == ["a.txt"]
    with pytest.raises(ConnectorError, match="copy the object to another key"):
        read_all(text(f"{bucket}//a.txt"))
    source = text(bucket)
    assert read_all(source).rows == ["a.txt"]
    assert "1 file is left out" in source.splits(1).warnings[0]


def test_markers_of_folders_are_no_files(put, endpoint):
    bucket = put("markers", "in/", "in/full/", "in/full/a.txt", "in/empty/")
    source = FileSource.parquet(f"{bucket}/in/full", storage_options={**OPTIONS, "endpoint": endpoint})
    system = source._file_systems()(bucket)
    assert [info.path for info in system.find(f"{bucket}/in")] == [f"{bucket}/in/full/a.txt"]
