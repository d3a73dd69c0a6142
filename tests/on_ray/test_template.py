"""Workers of a local cluster are forked from a template, and are as those that Ray starts.

One program tells most of what is looked at here: a cluster starts for seconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import ray

PROGRAM = """
import ctypes, json, os, random, signal, sys, tempfile, threading
from pathlib import Path
import numpy, psutil, ray
from penstock.cluster import start_local
from penstock import Checkpointing, FileSink, GeneratorSource, StreamEnvironment

start_local(num_cpus=1)


def arenas():
    # How many the allocator has while many threads hold memory.
    libc, meeting = ctypes.CDLL(None), threading.Barrier(9)
    libc.malloc.restype = ctypes.c_void_p

    def allocate():
        libc.malloc(100)
        meeting.wait()

    for _ in range(8):
        threading.Thread(target=allocate).start()
    meeting.wait()
    libc.fopen.restype = ctypes.c_void_p
    with tempfile.NamedTemporaryFile() as told:
        file = ctypes.c_void_p(libc.fopen(told.name.encode(), b"w"))
        libc.malloc_info(0, file)
        libc.fclose(file)
        return told.read().count(b"<heap nr=")


@ray.remote(num_cpus=0)
class Worker:
    def tell(self):
        me = psutil.Process()
        return {
            "pid": me.pid,
            "parent": " ".join(me.parent().cmdline()),
            "parent_pid": me.ppid(),
            "leads_group": os.getpgid(0) == me.pid,
            "niceness": me.nice(),
            "out_of_memory": Path("/proc/self/oom_score_adj").read_text().strip(),
            "children_are_waited_for": signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL,
            "collects": __import__("gc").isenabled(),
            "program": sys.argv[0],
            "main": sys.modules["__main__"].__file__,
            "random": [random.random(), float(numpy.random.random())],
            "variable": os.environ.get("OF_THE_JOB"),
            "arenas": arenas(),
        }


def told(**options):
    worker = Worker.options(**options).remote()
    workers.append(worker)
    return ray.get(worker.tell.remote())


def modules(_):
    return {"loaded": sorted(sys.modules)}


workers = []


first, second = told(), told()
other = told(runtime_env={"env_vars": {"OF_THE_JOB": "yes"}})
processes = [psutil.Process(each["pid"]) for each in (first, second, other)]
processes.append(psutil.Process(first["parent_pid"]))
ray.shutdown()
_, alive = psutil.wait_procs(processes, timeout=300)

start_local(num_cpus=1, fork_workers=False)
env = StreamEnvironment("imports", checkpointing=Checkpointing(every=0.2, storage="checkpoints"))
env.from_source("in", GeneratorSource(modules, count=60, rate=60.0)).sink("out", FileSink.json("out"))
done = env.run(progress=False).statistics.completed_checkpoints
lines = [line for file in Path("out").iterdir() for line in file.read_text().splitlines()]
loaded = sorted({name for line in lines for name in json.loads(line)["loaded"]})
tellings = {"first": first, "second": second, "other": other, "plain": told()}
print(json.dumps({**tellings, "alive": len(alive), "loaded": loaded, "checkpoints": done}))
"""

TEMPLATE = "penstock.actors.template.template_process"

#: Prints the modules that the template has loaded before it forks.
LOADED_BY_TEMPLATE = f"""
import json, sys
from {TEMPLATE} import import_all
import_all()
print(json.dumps(list(sys.modules)))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Facts that workers of a separate program report about themselves."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    mine |= {"RAY_worker_niceness": "3", "RAY_raylet_start_wait_time_s": "120"}
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=mine,
        cwd=tmp_path_factory.mktemp("program"),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert program.returncode == 0, program.stderr
    # Ray may print a warning of its own behind it.
    (found,) = (json.loads(line) for line in program.stdout.splitlines() if line.startswith("{"))
    return found  # type: ignore[no-any-return]


@pytest.mark.long
def test_workers_are_forked_from_the_template_and_differ_from_those_of_ray_in_their_allocator_alone(
    told: dict[str, Any],
) -> None:
    assert TEMPLATE in told["first"]["parent"]
    assert TEMPLATE not in told["plain"]["parent"]
    own = {"pid", "parent", "parent_pid", "random", "arenas"}
    forked = {name: value for name, value in told["first"].items() if name not in own}
    assert forked == {name: value for name, value in told["plain"].items() if name not in own}
    assert Path(told["first"]["program"]).name == "default_worker.py"
    assert told["first"]["niceness"] == 3 + os.getpriority(os.PRIO_PROCESS, 0)


@pytest.mark.long
def test_threads_of_a_worker_share_one_arena_of_the_allocator(told: dict[str, Any]) -> None:
    assert [told[name]["arenas"] for name in ("first", "second", "other")] == [1, 1, 1]
    assert told["plain"]["arenas"] > 1


@pytest.mark.long
def test_forked_workers_draw_random_numbers_of_their_own(told: dict[str, Any]) -> None:
    assert set(told["first"]["random"]).isdisjoint(told["second"]["random"])


@ray.remote(num_cpus=0)
class Worker:
    def tell(self) -> tuple[str, str | None]:
        """The command that has started this process, and a variable of its environment."""
        parent = psutil.Process().parent()
        assert parent is not None
        return " ".join(parent.cmdline()), os.environ.get("OF_THE_JOB")


def test_a_worker_with_an_environment_of_its_own_is_not_forked(ray_cluster: None) -> None:
    plain = Worker.remote()
    other = Worker.options(runtime_env={"env_vars": {"OF_THE_JOB": "yes"}}).remote()
    (parent, variable), (parent_of_other, variable_of_other) = ray.get(
        [each.tell.remote() for each in (plain, other)]
    )
    assert (variable, variable_of_other) == (None, "yes")
    assert TEMPLATE in parent
    assert TEMPLATE not in parent_of_other


@pytest.mark.long
def test_the_template_and_its_workers_end_with_the_cluster(told: dict[str, Any]) -> None:
    assert told["alive"] == 0


@pytest.mark.long
def test_a_subtask_that_writes_json_lines_has_loaded_no_coordinator_and_no_parquet(
    told: dict[str, Any],
) -> None:
    """With all the handles that Ray gives it. A forked one begins with all that the template has loaded."""
    loaded = set(told["loaded"])
    assert told["checkpoints"] >= 2
    assert {"penstock.actors.master.job_master", "penstock.runtime.task.subtask"} <= loaded
    of_others = ("penstock.actors.master.", "penstock.actors.client", "penstock.actors.command_line")
    assert {name for name in loaded if name.startswith(of_others)} == {"penstock.actors.master.job_master"}
    assert not {"penstock.runtime.job.scheduler", "penstock.runtime.graph.streams.data_stream"} & loaded
    assert not {"rich", "typer", "pandas", "pyarrow.parquet", "pyarrow.compute"} & loaded


@pytest.mark.long
def test_the_template_has_loaded_all_that_ray_and_penstock_load_in_a_worker(told: dict[str, Any]) -> None:
    template = subprocess.run(
        [sys.executable, "-c", LOADED_BY_TEMPLATE], capture_output=True, text=True, check=True, timeout=300
    )
    assert set(told["loaded"]) - set(json.loads(template.stdout)) == set()
