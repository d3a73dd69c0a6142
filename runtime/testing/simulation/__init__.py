"""The deterministic simulation: whole jobs in one thread under a seeded scheduler with a virtual clock.

A seed picks everything: the graph, the settings, the weather (which channels are slow, what is starved), the
faults, what the user asks for, and the order of every single happening. The same seed gives the same run on
every machine. After the run an oracle that knows only the input says what is wrong, if anything is.

What is real: the scheduler of the job with its states, the checkpoint coordinator, coordinators of sources
behind their valves, the log of decisions, the subtasks with their gates, barrier handlers, operators, state
backends and codecs. What is simulated: time, processes, the network between them, the storage, background
work, and the outside world of sinks and of master hooks.

    python -m penstock.runtime.testing.simulation --seed 7 --trace
    python -m penstock.runtime.testing.simulation --seeds 0:1000

The files, from the inside out:

* `draws`, `faults`, `trace`: choices, kinds of failures with their counts, what a run says about itself
* `agenda`: everything that may happen next, and in which order it does
* `records`, `external_system`, `operators`: the data, the world behind sinks, and the users' code of a job
* `split_source`, `surroundings`: sources with splits on request and with master hooks
* `shape`, `second_job`, `draw_shape`, `draw_axes`, `scenario`: the graph, and all that a seed picks
* `world`, `faulty_storage`, `places`, `frames`, `simulated_work`, `task_supervisor`, `running_task`,
  `process`, `fleet`: where subtasks run
* `master_hook`, `valve_watch`, `restores`: what hooks were asked, what valves held, and how jobs came up
* `job`, `master`, `deployment`, `execution`, `control_plane`: where the scheduler runs, and what it asks for
* `user`, `injector`: what a user asks for; makes planned faults happen
* `handover`, `code_hooks`, `simulation`: the second job of a run; runs one seed
* `expectation`, `final_state`, `oracle`: what must come out, by the input alone, and the comparison
* `stuck`: what a job that stands still waits for
* `runs`, `stress`: many seeds, and Flink's stress test of unaligned checkpoints
* `rescaling`: jobs that go on at a parallelism that is given
"""
