"""The deterministic simulation: whole jobs in one thread under a seeded scheduler with a virtual clock.

A seed picks everything: the graph, the settings, the weather (which channels are slow, what is starved), the
faults, what the user asks for, and the order of every single happening. The same seed gives the same run on
every machine. After the run an oracle that knows only the input says what is wrong, if anything is.

What is real: the scheduler of the job with its states, the checkpoint coordinator, coordinators of sources
behind their valves, the decision log, the subtasks with their gates, barrier handlers, operators, state
backends and codecs. What is simulated: time, processes, the network between them, the storage, background
work, and the outside world of sinks and of master hooks.

    python -m penstock.runtime.testing.simulation --seed 7 --trace
    python -m penstock.runtime.testing.simulation --seeds 0:1000

The rooms, from the inside out:

* `world`: chance, time, the agenda, failures, storage, and what the run says about itself
* `cluster`: processes with real subtasks, the network between them, JobMasters with the real scheduler
* `injection`: makes planned faults and users' requests happen
* `simulated_run`: makes the moves of a run
* `jobs`: the jobs that seeds draw, with the world behind their sinks
* `oracle`: what must come out of them, and the comparison
* `simulation`, `runs`: one seed, and many seeds
* `cases`: scenarios that are given, not drawn
"""
