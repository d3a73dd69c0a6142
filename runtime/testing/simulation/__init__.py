"""The deterministic simulation: whole jobs in one thread under a seeded scheduler with a virtual clock.

A seed determines everything: the graph, the settings, the conditions (slow channels, starved processes), the
faults, the user's requests, and the order of all events. The same seed gives the same run on every machine.
After the run, an oracle that knows only the input checks the output.

Real are the job's scheduler with its states, the checkpoint coordinator, source coordinators with their
valves, and the decision log. So are the subtasks with their gates, barrier handlers, operators, state
backends and codecs. Simulated are time, processes, the network, the storage, background work, and the
external systems behind sinks and master hooks.

    python -m penstock.runtime.testing.simulation --seed 7 --trace
    python -m penstock.runtime.testing.simulation --seeds 0:1000

The rooms, from the inside out:

* `world`: randomness, time, the agenda, failures, storage, and the trace of the run
* `cluster`: processes with real subtasks, the network between them, JobMasters with the real scheduler
* `injection`: makes planned faults and users' requests happen
* `simulated_run`: makes the moves of a run
* `jobs`: the jobs that seeds draw, with the external system behind their sinks
* `oracle`: what must come out of them, and the comparison
* `simulation`: one seed, and many seeds
* `cases`: scenarios that are given, not drawn
"""
