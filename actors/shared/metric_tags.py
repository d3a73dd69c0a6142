"""Values of metrics' tags in any alphabet, for Ray's metrics, which encode them as ASCII.

Ray's C++ side, its agent and Prometheus take any UTF-8. Only the Cython layer between refuses it: it asks
each value for `value.encode("ascii")`. A `str` that answers with UTF-8 gets through, and Prometheus shows the
name as its user wrote it. A replacement such as `?` would make one series of different names.
"""

from __future__ import annotations

from penstock.runtime.redaction import redacted


class _Tag(str):
    __slots__ = ()

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """The value as UTF-8, whatever encoding Ray asks for."""
        return super().encode("utf-8", "backslashreplace")


def metric_tags(**tags: str) -> dict[str, str]:
    """Tags for a metric of Ray's, with values in any alphabet.

    Example:
        >>> metric_tags(job_name="注文")["job_name"].encode("ascii").decode()
        '注文'
    """
    return {name: _Tag(redacted(value)) for name, value in tags.items()}
