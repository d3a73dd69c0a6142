"""Records the Python stacks of some calls, in every process that starts with this folder on its path.

`tools/walks.py` sets `PENSTOCK_WALKS`: a folder and the functions to watch, separated by commas. Each
function is `module:qualified.name`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import wrapt

_FOLDER, *_WATCHED = os.environ.get("PENSTOCK_WALKS", "").split(",")


def _stack(frame: FrameType | None) -> list[tuple[str, str, str]]:
    """File, module and qualified name of Penstock's own frames, the outermost first."""
    found = []
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if module.startswith("penstock."):
            found.append((frame.f_code.co_filename, module, frame.f_code.co_qualname))
        frame = frame.f_back
    return found[::-1]


def _watch(module: str, name: str) -> None:
    def record(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        types = [type(argument).__name__ for argument in (*args, *kwargs.values())]
        code = wrapped.__code__
        stack = [*_stack(sys._getframe(1)), (code.co_filename, module, name)]
        with (Path(_FOLDER) / f"{os.getpid()}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps({"of": f"{module}:{name}", "types": types, "stack": stack}) + "\n")
        return wrapped(*args, **kwargs)

    def imported(_: ModuleType) -> None:
        wrapt.wrap_function_wrapper(module, name, record)

    wrapt.register_post_import_hook(imported, module)


for _watched in _WATCHED:
    _watch(*_watched.split(":"))
