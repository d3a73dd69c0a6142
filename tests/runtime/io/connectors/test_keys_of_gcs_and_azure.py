"""Keys that obstore can't hold, on Google Cloud Storage and on Azure: as on S3."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import ConnectorError, FileSource


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    program = Path(__file__).with_name("cloud_server.py")
    with subprocess.Popen([sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.communicate()


@pytest.fixture(params=["gs", "az"])
def place(request: pytest.FixtureRequest, port: int) -> tuple[str, dict[str, str]]:
    """URL of the bucket, and the storage options for it."""
    if request.param == "gs":
        account = {"gcs_base_url": f"http://127.0.0.1:{port}", "disable_oauth": True, "client_email": ""}
        key = json.dumps({**account, "private_key": "", "private_key_id": ""})
        return "gs://bucket", {"service_account_key": key, "allow_http": "true"}
    endpoint = f"http://127.0.0.1:{port}/account"
    return "az://bucket", {
        "account_name": "account",
        "account_key": "a2V5",
        "endpoint": endpoint,
        "allow_http": "true",
    }


@pytest.mark.parametrize("folder", ["in", ""])
def test_an_odd_key_hides_no_other_one(place, read_all, folder):
    url, options = place
    source = FileSource.text(f"{url}/{folder}", storage_options=options)
    assert sorted(read_all(source).rows) == ["in/a.txt", "in/tab\t.txt"]
    (notice,) = source.splits(1).warnings
    assert f"{2 if folder else 3} files are left out" in notice
    assert "copy the object to another key" in notice


def test_a_key_with_a_control_character_is_read(place, read_all):
    url, options = place
    assert read_all(FileSource.text(f"{url}/in/tab\t.txt", storage_options=options)).rows == ["in/tab\t.txt"]


@pytest.mark.parametrize("key", ["in/x//y.txt", "./z.txt", "in/../w.txt"])
def test_an_unreadable_key_that_the_program_names_is_refused(place, read_all, key):
    url, options = place
    with pytest.raises(ConnectorError, match="copy the object to another key"):
        read_all(FileSource.text(f"{url}/{key}", storage_options=options))
