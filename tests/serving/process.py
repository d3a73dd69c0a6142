"""A server in a process of its own, on loopback: started, killed, started again on the same port and data."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

#: Seconds for a server to start or to stop on a busy machine.
_PATIENCE: Final = 60.0
#: Seconds between two looks at a server that starts.
_INTERVAL: Final = 0.005


class Server:
    """A server that is ready when it accepts connections and passes a check.

    Attributes:
        log: All that its processes have written.
    """

    def __init__(
        self, command: Sequence[str], port: int, log: Path, is_ready: Callable[[], bool] = lambda: True
    ) -> None:
        self.port = port
        self.log = log
        self._command = list(command)
        self._is_ready = is_ready
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + _PATIENCE
        while not (self._accepts() and self._is_ready()):
            last = self.log.read_text(errors="replace")[-2000:]
            assert self._process.poll() is None, f"{self._command} ended: {last}"
            assert time.monotonic() < deadline, f"{self._command} did not get ready: {last}"
            time.sleep(_INTERVAL)

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """SIGTERM."""
        self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP: connections stay open, and nothing answers."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(_PATIENCE)

    def _accepts(self) -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False
