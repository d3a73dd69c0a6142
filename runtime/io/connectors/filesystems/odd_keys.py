"""Keys that obstore can't hold: with an empty part (`a//b`), a part `.` or `..`, or a control character.

A store may have such keys. obstore can't read them, and a single one makes it refuse to list all the others.
On S3 the place is then listed through Arrow, which gives every key. Only listing uses Arrow: it reads none of
these keys either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import obstore
from obstore.store import MemoryStore, S3Store

from penstock.runtime.io.connectors.errors import ConnectorError

#: Why such a key is not read, and what to do about it.
WHY_ODD = (
    "an empty part, a part '.' or '..', or a control character in a key can't be read through obstore; copy "
    "the object to another key"
)


def is_odd(key: str) -> bool:
    r"""Whether obstore can't hold a key.

    Example:
        >>> [is_odd(key) for key in ("a/[b] #?.txt", "a//b", "a/./b", "a/\n")]
        [False, True, True, True]
    """
    try:
        obstore.head(MemoryStore(), key)
    except FileNotFoundError:
        return False
    except ValueError:
        return True
    return False


def without_odd_parts(key: str) -> str:
    r"""A key as a pattern finds it.

    Example:
        >>> without_odd_parts("in//./a\tb.txt")
        'in/a_b.txt'
    """
    parts = (part for part in key.split("/") if part not in ("", ".", ".."))
    return re.sub(r"[\x00-\x1f\x7f]", "_", "/".join(parts))


def list_with_odd_keys(store: Any, root: str, folder: str) -> Iterator[dict[str, Any]]:
    """All objects below a folder of a bucket, as obstore describes them, also those with odd keys.

    Args:
        store: The bucket, rooted at its top.
        root: URL of the bucket, without a slash at its end.
        folder: Key of the folder, with a slash at its end; empty for the whole bucket.

    Raises:
        ConnectorError: The store is none of S3.
    """
    if not isinstance(store, S3Store):
        msg = f"{root}/{folder} has a key that can't be listed: {WHY_ODD}, or read a folder without it"
        raise ConnectorError(msg)
    import pyarrow.fs as arrow_fs  # slow to load, and not needed for most places

    bucket = root.split("://", 1)[1]
    below = f"{bucket}/{folder.rstrip('/')}".rstrip("/")
    selector = arrow_fs.FileSelector(below, recursive=True, allow_not_found=True)
    for info in _arrow_file_system(store, arrow_fs).get_file_info(selector):
        if info.type is arrow_fs.FileType.File:
            key = info.path[len(bucket) + 1 :]
            yield {"path": key, "size": info.size, "is_odd": is_odd(key) or key.startswith("/")}


def _arrow_file_system(store: S3Store, arrow_fs: Any) -> Any:
    """The same place for Arrow; what is not set comes from the environment, as for obstore."""
    config: dict[str, Any] = dict(store.config)
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
    anonymous = str(config.get("skip_signature", "")).lower() in ("true", "1", "yes", "on")
    given = {name: value for name, value in settings.items() if value is not None}
    return arrow_fs.S3FileSystem(anonymous=anonymous, **given)
