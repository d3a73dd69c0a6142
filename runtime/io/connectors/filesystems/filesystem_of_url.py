"""Which file system serves a location: the local disk, or the object store that its URL names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.filesystems.filesystem import FileSystem
from penstock.runtime.io.connectors.filesystems.local_files import LocalFileSystem
from penstock.runtime.redaction import has_password

#: URL schemes that are served through obstore.
OBJECT_STORE_SCHEMES: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss")


def filesystem_for(location: str, storage_options: Mapping[str, str]) -> FileSystem:
    """The file system that serves an absolute location.

    Raises:
        ConfigurationError: The URL's scheme is not known.
    """
    if "://" not in location:
        return LocalFileSystem()
    scheme = location.split("://", 1)[0]
    if scheme not in OBJECT_STORE_SCHEMES:
        known = ", ".join(f"{each}://" for each in ("file", *OBJECT_STORE_SCHEMES))
        msg = f"{location}: no file system is known for {scheme}://; use a local path or one of {known}"
        raise ConfigurationError(msg)
    if has_password(location):
        msg = f"{location} has a password in it, which snapshots and pages would show: use storage_options"
        raise ConfigurationError(msg)
    from penstock.runtime.io.connectors.filesystems.object_files import (
        object_file_system,  # most jobs need no obstore here
    )

    return object_file_system(location, storage_options)
