"""The decision log on Google Cloud Storage, through obstore, when requests are refused, lost or hang."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from gcs_server import BUCKET, GcsServer, gcs_server

from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun
from penstock.runtime.checkpoint.log.slots import Fenced, OutcomeUnknownError
from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageTimeoutError
from penstock.runtime.io.storage import ObjectStorage, open_storage
from penstock.runtime.snapshot.paths import SnapshotPaths

PATHS = SnapshotPaths("j")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[GcsServer]:
    with gcs_server() as server:
        account = {
            "gcs_base_url": server.url,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        monkeypatch.setenv("GOOGLE_SERVICE_ACCOUNT_KEY", json.dumps(account))
        monkeypatch.setenv("GOOGLE_ALLOW_HTTP", "true")
        yield server


def opened(timeout: float = 60.0) -> ObjectStorage:
    return open_storage(f"gs://{BUCKET}/jobs", timeout=timeout)


def test_what_was_put_is_found_listed_and_deleted(server: GcsServer) -> None:
    storage = opened()
    storage.put("j/shared/a=20b", b"1")
    storage.put("j/shared/a=20b", b"2")
    storage.put("j/log/0", b"3", create=True)
    assert storage.get("j/shared/a=20b") == b"2"
    assert storage.list("j/") == ["j/log/0", "j/shared/a=20b"]
    with pytest.raises(ObjectExistsError):
        storage.put("j/log/0", b"4", create=True)
    storage.delete(["j/log/0", "j/shared/gone"])
    with pytest.raises(ObjectNotFoundError):
        storage.get("j/log/0")


@pytest.mark.parametrize("fault", ["refused", "lost", "lost_503"])
def test_a_record_that_is_refused_or_whose_answer_is_lost_is_written_once(
    server: GcsServer, fault: str
) -> None:
    """The client tries again, and learns that its own record is there already."""
    log = DecisionLog(opened(), PATHS)
    server.strike("PUT", fault)
    begun = log.begin_attempt(1.0)
    assert isinstance(begun, AttemptBegun)
    server.strike("PUT", fault)
    log.end("finished", None, 2.0)

    assert server.struck == [("PUT", fault)] * 2
    other = DecisionLog(opened(), PATHS)
    assert other.replay() == log.replay()
    assert other.replay().last_attempt == begun.attempt
    assert other.replay().ended is not None


@pytest.mark.parametrize("fault", ["hangs", "hangs_after"])
def test_a_record_that_gets_no_answer_is_in_doubt_until_the_next_one_decides(
    server: GcsServer, fault: str
) -> None:
    """It is stored (`hangs_after`) or is not (`hangs`)."""
    storage = opened(timeout=1.0)
    log = DecisionLog(storage, PATHS)
    log.begin_attempt(1.0)
    server.strike("PUT", fault)
    with pytest.raises((OutcomeUnknownError, StorageTimeoutError)):
        log.end("finished", None, 2.0)

    other = DecisionLog(storage, PATHS)
    found = other.begin_attempt(3.0)
    if fault == "hangs":
        assert isinstance(found, AttemptBegun)
        assert isinstance(log.end("finished", None, 4.0), Fenced)
    else:
        assert found == other.replay().ended
