"""Machines for Ray's cluster launcher on this one: hosts of `hosts.py` with `ssh` and `rsync` between them.

Each machine has its own network, process ids, home and `/tmp`. In place of OpenSSH there are two small
programs, `ssh` and `rsync`. They hand their arguments to this process, which carries them out on the
machine that they name. So the launcher runs as it is, with the commands of `ray-cluster.yaml`, and needs no
server and no key. `ray stop`, which ends all of Ray that it sees, sees the processes of its machine alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from jobs.driving import eventually
from jobs.hosts import Host, network

_BIN: Final = Path(sys.executable).parent
#: Stands for `ssh` and `rsync`: sends its name and arguments, prints the answer, ends with its code.
_STAND_IN: Final = """#!{python}
import json, os, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect({path!r})
with link.makefile("rw") as lines:
    json.dump([os.path.basename(sys.argv[0]), os.environ["HOME"], os.getcwd(), *sys.argv[1:]], lines)
    lines.write("\\n")
    lines.flush()
    answer = json.loads(lines.readline())
sys.stdout.write(answer["said"])
sys.stdout.flush()
os._exit(answer["code"])
"""
#: `~/penstock-env/bin/pip` of a machine: the wheel of another test is not installed once more.
_PIP: Final = '#!/bin/sh\necho "$@" >> ~/pip-was-called\n'


@dataclass
class Machine:
    """A host with its first process, whose namespaces all other processes on it join."""

    host: Host
    home: Path
    first: subprocess.Popen[bytes]
    pid: int

    @property
    def address(self) -> str:
        return self.host.address

    def run(self, command: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run a shell command there; what it starts in the background lives on."""
        words = ["nsenter", f"--target={self.pid}", "--pid", "--net", "--mount", "--wd=" + str(self.home)]
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [*words, "bash", "-c", command],
                env=environment(self.home) | more,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                timeout=600,
            )
            said.seek(0)
            return subprocess.CompletedProcess(command, done.returncode, said.read())


def environment(home: Path) -> dict[str, str]:
    """Of a login on a machine: nothing of Ray's, and the stand-ins first."""
    return {
        "HOME": str(home),
        "PATH": f"{home.parent / 'bin'}:{_BIN}:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "USER": "root",
        "TERM": "dumb",
    }


@dataclass
class Machines:
    """All machines, the launcher's own being the last, and the folder in which their homes are."""

    folder: Path
    machines: list[Machine] = field(default_factory=list)

    @property
    def head(self) -> Machine:
        return self.machines[0]

    @property
    def nodes(self) -> list[Machine]:
        return self.machines[:-1]

    @property
    def launcher(self) -> Machine:
        return self.machines[-1]

    def carry_out(self, name: str, home: str, cwd: str, arguments: Sequence[str]) -> dict[str, Any]:
        """The effect of `ssh` and `rsync`."""
        if name == "rsync":
            return self._copy(home, cwd, *arguments[-2:])
        at = next(index for index, word in enumerate(arguments) if "@" in word and "=" not in word)
        machine = self._at(arguments[at])
        done = machine.run(" ".join(arguments[at + 1 :]))
        return {"code": done.returncode, "said": done.stdout}

    def _copy(self, home: str, cwd: str, source: str, target: str) -> dict[str, Any]:
        login, _, place = target.partition(":")
        machine = self._at(login)
        source = os.path.join(cwd, source)
        if source.startswith("/tmp/"):
            source = home + source
        place = place.replace("~", str(machine.home), 1)
        # Files of the launcher's machine go by this process: /tmp is another one there.
        through = machine.home / ".rsync"
        shutil.rmtree(through, ignore_errors=True)
        through.mkdir()
        copied = through / "copied"
        if os.path.isdir(source):
            shutil.copytree(source, copied)
        elif os.path.exists(source):
            shutil.copy(source, copied)
        else:
            return {"code": 23, "said": f"{source} is not there\n"}
        place = place.rstrip("/")
        command = f"mkdir -p '{os.path.dirname(place)}' && cp -rT '{copied}' '{place}'"
        done = machine.run(command)
        return {"code": done.returncode, "said": done.stdout}

    def _at(self, login: str) -> Machine:
        address = login.rpartition("@")[2]
        return next(machine for machine in self.machines if machine.address == address)


@contextmanager
def machines(count: int = 4) -> Iterator[Machines]:
    """Machines that the launcher can reach; gone afterwards."""
    # Not in /tmp: each machine has one of its own.
    folder = Path(tempfile.mkdtemp(prefix="psm-", dir="/var/tmp"))
    made = Machines(folder)
    stand_in = _STAND_IN.format(python=sys.executable, path=str(folder / "link"))
    (folder / "bin").mkdir()
    for name in ("ssh", "rsync"):
        (folder / "bin" / name).write_text(stand_in)
        (folder / "bin" / name).chmod(0o755)

    class Link(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            name, home, cwd, *arguments = json.loads(self.rfile.readline())
            try:
                answer = made.carry_out(name, home, cwd, arguments)
            except Exception as error:  # the other side must learn of it, whatever it is
                answer = {"code": 255, "said": f"{name} {arguments}: {error!r}\n"}
            self.wfile.write((json.dumps(answer) + "\n").encode())

    server = socketserver.ThreadingUnixStreamServer(str(folder / "link"), Link)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with network(count) as hosts:
            try:
                for number, host in enumerate(hosts.hosts):
                    made.machines.append(_machine(host, folder / f"home{number}"))
                yield made
            finally:
                for machine in made.machines:
                    machine.first.send_signal(signal.SIGKILL)
                    machine.first.wait()
    finally:
        server.shutdown()
        server.server_close()
        shutil.rmtree(folder, ignore_errors=True)


def _machine(host: Host, home: Path) -> Machine:
    """Boot it: a first process with process ids and mounts of its own, and a `/tmp`."""
    for folder in (home / "tmp", home / "penstock-env" / "bin"):
        folder.mkdir(parents=True)
    for name in ("ray", "python", "pip", "jupyter"):
        program = home / "penstock-env" / "bin" / name
        program.write_text(_PIP if name == "pip" else f'#!/bin/sh\nexec {_BIN / name} "$@"\n')
        program.chmod(0o755)
    # A login shell begins with the PATH of /etc/profile.
    for name in (".bash_profile", ".bashrc"):
        (home / name).write_text(f"export PATH='{environment(home)['PATH']}'\n")
    # The first process reaps what its children leave behind, as an init does.
    # A Java of the distribution is hidden: the cluster has to bring its own.
    hidden = "".join(f"mount --bind /dev/null {java} && " for java in {shutil.which("java")} - {None})
    boot = f"{hidden}mount --bind {home}/tmp /tmp && touch {home}/up; while :; do sleep 1000 & wait $!; done"
    words = ["ip", "netns", "exec", host.namespace, "unshare", "--mount", "--pid", "--fork", "--kill-child"]
    first = subprocess.Popen([*words, "--mount-proc", "bash", "-c", boot], env=environment(home))
    eventually("a machine", (home / "up").exists, 30.0)
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text().split()
    with contextlib.suppress(ValueError):
        return Machine(host, home, first, int(children[0]))
    raise AssertionError(children)
