"""Paths and URLs of storages as users write them."""

from __future__ import annotations

from pathlib import Path


def absolute_url(place: str | Path) -> str:
    """A path made absolute from the folder of this program; a URL as it is.

    Example:
        >>> absolute_url("s3://bucket/saved"), absolute_url("/data/saved/")
        ('s3://bucket/saved', '/data/saved')
    """
    text = str(place)
    return text if "://" in text else str(Path(text).expanduser().absolute())
