"""Opens `penstock ui` for a program, in a separate process that ends with the program."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from html import escape
from typing import Final

import ray

from penstock.runtime.errors import DeploymentError

#: Seconds for the process to end when it is asked to.
_PATIENCE: Final = 10.0
#: The servers of this program. Each stays open when no variable holds it, as with `env.run(ui=True)`.
_OPEN: Final[list[UserInterface]] = []


@dataclass(frozen=True, slots=True)
class UserInterface:
    """A server of `penstock ui` that this program has started.

    Attributes:
        login: The address that begins a session, once, with the page of the job.
        process: The server's process. It ends when its standard input is closed, also when this program is
            killed.
    """

    address: str
    login: str = field(repr=False)
    process: subprocess.Popen[str] = field(repr=False)

    def close(self) -> None:
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self in _OPEN:
            _OPEN.remove(self)

    def _repr_html_(self) -> str:
        return f'<a href="{escape(self.login)}" target="_blank">Penstock</a> at {escape(self.address)}'


def open_interface(job_id: str, *, storage: str | None = None, open_browser: bool = True) -> UserInterface:
    """Start a server beside this program, and show a job.

    Args:
        open_browser: Open a browser; without one the answer has the address.

    Raises:
        DeploymentError: The server does not start; the message says why.
    """
    command = [sys.executable, "-m", "penstock.actors.command_line", "ui", "--json", "--with-parent"]
    command += ["--job", job_id, "--open" if open_browser else "--no-open"]
    if ray.is_initialized():
        command += ["--address", ray.get_runtime_context().gcs_address]
    if storage is not None:
        command += ["--storage", storage]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        msg = f"`penstock ui` has ended with code {process.wait()}; it has said why on stderr"
        raise DeploymentError(msg)
    printed = json.loads(line)
    opened = UserInterface(printed["address"], printed["login"], process)
    _OPEN.append(opened)
    return opened


def open_interfaces() -> tuple[UserInterface, ...]:
    """The servers that this program has opened and not closed."""
    return tuple(_OPEN)
