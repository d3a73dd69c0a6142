"""The deterministic simulation: whole jobs in one thread under a seeded scheduler with a virtual clock.

A seed determines everything: the conditions (slow channels, starved processes), the faults, the user's
requests, and the order of all events. The same seed gives the same run on every machine.

Real are the job's scheduler with its states, the checkpoint coordinator, source coordinators with their
valves, and the decision log. So are the subtasks with their gates, barrier handlers, operators, state
backends and codecs. Simulated are time, processes, the network, the storage, background work, and the
external systems behind sinks and master hooks.

The rooms, from the inside out:

* `world`: randomness, time, the agenda, failures, storage, and the trace of the run
* `cluster`: processes with real subtasks, the network between them, JobMasters with the real scheduler
* `injection`: makes planned faults and users' requests happen
* `simulated_run`: makes the moves of a run
* `user_graph`: `penstock.testing.simulate`, which runs users' jobs

The project's tests run jobs of their own in it: `tests/simulated_jobs`.
"""
