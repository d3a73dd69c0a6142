"""Shows the command that started this program, and runs the programs that `penstock` commands start."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from shlex import join
from typing import Final

from penstock.runtime.error_text import escaped
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.redaction import redacted

#: Stands for a command that can't be shown, such as that of a notebook.
PROGRAM: Final = "python PROGRAM"


def own_program(command: Sequence[str] | None = None) -> str:
    """Return the command that started this program, quoted for a shell.

    Returns `python PROGRAM` for notebooks, interactive programs, and commands that may hold a secret.

    Args:
        command: The words of the command; by default those of this program.

    Example:
        >>> own_program(["python", "job.py", "--input", "my words"])
        "python job.py --input 'my words'"
        >>> own_program(["python", "-c", "import penstock"]), own_program(["python"])
        ('python PROGRAM', 'python PROGRAM')
    """
    words = sys.orig_argv if command is None else command
    has_file = any(word.endswith(".py") for word in words) or "-m" in words
    is_kernel = any("ipykernel" in word for word in words)
    line = join(words)
    if not has_file or is_kernel or redacted(line) != line or escaped(line) != line:
        return PROGRAM
    return line


def is_interactive() -> bool:
    """Whether this program is a notebook or a shell, which continues after an interrupt."""
    shell = sys.modules.get("IPython")
    stays = bool(sys.flags.inspect) or hasattr(sys, "ps1")
    return stays or (shell is not None and shell.get_ipython() is not None)


def run_program(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """Run a command to its end, and return its exit code; Ctrl-C interrupts only the command.

    Raises:
        ConfigurationError: The command can't be run.
    """
    try:
        process = subprocess.Popen(command, env=environment)
    except OSError as error:
        hint = f": give the whole command, such as python {command[0]}" if command[0].endswith(".py") else ""
        msg = f"{command[0]!r} can't be run: {error.strerror}{hint}"
        raise ConfigurationError(msg) from error
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code = process.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code
