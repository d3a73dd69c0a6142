"""S3 from moto's server, in a process of its own that can stop to answer."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from serving.kafka import free_ports
from serving.process import Server

SECRET: Final = "hush-hush-hush"
BUCKET: Final = "tables"


class S3Server(Server):
    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def s3_server(folder: Path) -> Iterator[S3Server]:
    """A server with an empty bucket in memory."""
    import boto3

    (port,) = free_ports(1)
    program = str(Path(sys.executable).parent / "moto_server")
    server = S3Server([program, "-H", "127.0.0.1", "-p", str(port)], port, folder / "s3.log")
    try:
        server.start()
        keys: Any = {"region_name": "us-east-1", "aws_access_key_id": "x", "aws_secret_access_key": SECRET}
        boto3.client("s3", endpoint_url=server.endpoint, **keys).create_bucket(Bucket=BUCKET)
        yield server
    finally:
        server.resume()
        server.kill()
