"""Deterministic simulation of whole jobs in one thread, with a seeded scheduler and a virtual clock.

A seed determines everything: the conditions (slow channels, starved processes), the faults, the user's
requests, and the order of all events. The same seed gives the same run on every machine.

The simulation runs the real scheduler with its states, checkpoint coordinator, source coordinators with their
valves, and decision log. It also runs the real subtasks with their gates, barrier handlers, operators, state
backends and codecs. It simulates time, processes, the network, the storage, background work, and the external
systems behind sinks and master hooks.

Read it in this order. A package imports only packages above it. Most modules import only modules above them:

* `world` runs no job. `agenda` has the draws of a seed, the clocks, and the choice of the next event.
  `disks` and `faulty_storage` are the storage, whose power may fail. `faults` names the faults and their
  moments. `watches` records damage and restores for later checks. `world` combines these parts. `external` is
  the base of models of systems outside the job.
* `cluster` runs one job. `network` has the frames and the cuts. `process_resources` has the parts that are
  lost with a process. `running_task` is one attempt of a subtask, `process` the process that runs it, and
  `processes` the calls of JobMasters to all of them. `master` has the job and its JobMasters. `execution`
  runs a JobMaster's real `JobExecution`. `control_plane` starts, suspects and replaces JobMasters.
* `run` carries out a run. `target`, `damage_faults` and `injector` carry out planned faults and users'
  requests. `simulated_run` is the engine: it makes moves until the jobs have ended. The rest is
  `penstock.testing.simulate`. `user_job` prepares a user's job, and `user_run` runs it once. `uncontrolled`
  finds clocks, random numbers and other inputs that the seed does not control. `simulate` makes a `report` of
  all runs.

The project's tests run their own jobs in it: `tests/simulated_jobs`.
"""
