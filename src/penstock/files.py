"""Settings of `FileSource`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.files.folder_watch import FolderWatch as FolderWatch
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
