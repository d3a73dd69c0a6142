"""The modules beside the user's script, where workers don't have that folder on their path.

Ray puts the folder of the driver's script on the workers' path. In a job with a `working_dir`, as `ray job
submit --working-dir` makes it, workers have that folder instead. A script in a subfolder then imports modules
that no worker finds by name, so these travel by value, as the script itself does.

The script of a notebook's kernel is an installed one. Beside it are all installed packages, which workers
find by name.
"""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import Final

import ray
import ray.cloudpickle as cloudpickle

#: Where `ray job submit` leaves the job's runtime environment for `ray.init`.
_JOB_CONFIG: Final = "RAY_JOB_CONFIG_JSON_ENV_VAR"


def ship_script_modules() -> None:
    """Have modules beside the script pickled by value, unless workers find them by name."""
    folder = Path(sys.argv[0]).resolve().parent
    if folder == Path.cwd().resolve() or str(folder) not in sys.path or not _has_working_dir():
        return
    if folder in _installed():
        return
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and _is_beside(module, folder):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def _installed() -> set[Path]:
    """Where packages are installed."""
    return {Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")}


def _is_beside(module: ModuleType, folder: Path) -> bool:
    """Whether a module is found in this folder: it, or the package that it is in, lies there."""
    top = module.__name__.partition(".")[0]
    file = getattr(module, "__file__", None)
    if top == "__main__" or file is None:
        return False
    path = Path(file).resolve()
    return path == folder / f"{top}.py" or folder / top in path.parents


def _has_working_dir() -> bool:
    """Whether the program runs, or is about to run, in a Ray job with a `working_dir`."""
    if ray.is_initialized():
        return "working_dir" in ray.get_runtime_context().runtime_env
    submitted = json.loads(os.environ.get(_JOB_CONFIG, "{}"))
    return "working_dir" in submitted.get("runtime_env", {})
