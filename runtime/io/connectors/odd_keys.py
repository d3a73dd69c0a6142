"""Odd keys: objects that obstore refuses, and the bucket opened by Arrow that reads some of them.

An odd key has an empty part (`a//b`), a part of one or two dots, or a control character. Obstore can't
read such a key, and a single odd key makes its whole listing fail. Then Arrow lists all keys. Arrow
also reads keys with control characters, but refuses empty parts. Over HTTP a part `.` or `..` may turn the
key into another object's key, so keys with these parts are never requested.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

from penstock.runtime.io.connectors.filesystem import FileInfo, InputFile

#: Reason why a key is not read, and the remedy.
WHY_UNREADABLE: Final = (
    "a key with an empty part, or a part '.' or '..', can't be read; copy the object to another key"
)

_YES: Final = ("true", "1", "yes", "on")


def is_odd(key: str) -> bool:
    r"""Whether obstore refuses a key.

    Example:
        >>> [is_odd(key) for key in ("a/[b] #?.txt", "a//b", "a/./b", "/a", "a/\n")]
        [False, True, True, True, True]
    """
    if key.startswith("/"):
        return True  # obstore would drop the slash and read another object
    try:
        obstore.head(MemoryStore(), key)
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return False


def is_unreadable(key: str) -> bool:
    """Whether neither obstore nor Arrow can read a key: a part of it is empty, `.` or `..`."""
    return key != "" and any(part in ("", ".", "..") for part in key.split("/"))


def without_odd_parts(key: str) -> str:
    return "/".join(part for part in key.split("/") if part not in ("", ".", ".."))


class ArrowBucket:
    """A bucket opened by Arrow, for keys that obstore refuses; Arrow's errors become `OSError`.

    Args:
        root: URL of the bucket, without a trailing slash.
    """

    def __init__(self, store: Any, root: str) -> None:
        self._store = store
        self._root = root
        self._bucket = store.config["container_name" if isinstance(store, AzureStore) else "bucket"]

    def objects(self, folder: str) -> Iterator[FileInfo]:
        import pyarrow.fs as arrow_fs  # slow to load, and not needed for most locations

        selector = arrow_fs.FileSelector(
            f"{self._bucket}/{folder}".rstrip("/"), recursive=True, allow_not_found=True
        )
        with _os_errors():
            for info in self._files().get_file_info(selector):
                if info.is_file:
                    yield self._info(info)

    def info(self, key: str) -> FileInfo | None:
        with _os_errors():
            info = self._files().get_file_info(f"{self._bucket}/{key}")
        return self._info(info) if info.is_file else None

    def open_input(self, key: str) -> InputFile:
        with _os_errors():
            opened: InputFile = self._files().open_input_file(f"{self._bucket}/{key}")
        return opened

    def _info(self, found: Any) -> FileInfo:
        path = f"{self._root}/{found.path[len(self._bucket) + 1 :]}"
        modified = None if found.mtime_ns is None else found.mtime_ns // 1000
        return FileInfo(path, found.size, modified=modified)

    def _files(self) -> Any:
        """Return the store as an Arrow file system; settings default to the environment, as in obstore."""
        if isinstance(self._store, S3Store):
            return _s3(dict(self._store.config))
        if isinstance(self._store, GCSStore):
            return _gcs(dict(self._store.config))
        return _azure(dict(self._store.config))


@contextmanager
def _os_errors() -> Iterator[None]:
    try:
        yield
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


def _s3(config: dict[str, Any]) -> Any:
    import pyarrow.fs as arrow_fs

    environment = os.environ.get
    endpoint = (
        config.get("endpoint")
        or environment("AWS_ENDPOINT_URL_S3")
        or environment("AWS_ENDPOINT_URL")
        or environment("AWS_ENDPOINT")
    )
    region = config.get("region") or environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")
    settings = {
        "access_key": config.get("access_key_id"),
        "secret_key": config.get("secret_access_key"),
        "session_token": config.get("session_token"),
        "region": region or "us-east-1",
        "endpoint_override": endpoint,
    }
    return arrow_fs.S3FileSystem(anonymous=_is_anonymous(config), **_given(settings))


def _gcs(config: dict[str, Any]) -> Any:
    """Return Arrow's GCS file system; it accepts a service account's key only from the environment."""
    import pyarrow.fs as arrow_fs

    account: dict[str, Any] = {}
    if "service_account_key" in config:
        account = json.loads(config["service_account_key"])
    if ("service_account_key" in config or "service_account" in config) and not account.get("disable_oauth"):
        msg = (
            "Arrow lists buckets with odd keys, but can't use a service account's key from storage_options; "
            "set GOOGLE_APPLICATION_CREDENTIALS on every node instead"
        )
        raise OSError(msg)
    base = urlsplit(account.get("gcs_base_url", ""))
    settings = {"scheme": base.scheme or None, "endpoint_override": base.netloc or None}
    anonymous = _is_anonymous(config) or bool(account.get("disable_oauth"))
    return arrow_fs.GcsFileSystem(anonymous=anonymous, **_given(settings))


def _azure(config: dict[str, Any]) -> Any:
    import pyarrow.fs as arrow_fs

    emulated = str(config.get("use_emulator", "")).lower() in _YES
    endpoint = urlsplit(config.get("endpoint") or ("http://127.0.0.1:10000" if emulated else ""))
    scheme, authority = endpoint.scheme or None, endpoint.netloc or None
    settings = {
        "account_key": config.get("account_key"),
        "sas_token": config.get("sas_key"),
        "tenant_id": config.get("tenant_id"),
        "client_id": config.get("client_id"),
        "client_secret": config.get("client_secret"),
        "blob_storage_scheme": scheme,
        "blob_storage_authority": authority,
        "dfs_storage_scheme": scheme,
        "dfs_storage_authority": authority,
    }
    account = config.get("account_name") or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    return arrow_fs.AzureFileSystem(account, **_given(settings))


def _is_anonymous(config: dict[str, Any]) -> bool:
    return str(config.get("skip_signature", "")).lower() in _YES


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}
