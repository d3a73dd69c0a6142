"""Jobs that the simulation of the project's own tests draws, and an oracle that knows only their input.

The engine is that of `penstock.testing.simulate` (`runtime/testing/simulation`). A seed also determines the
graph and the settings here, and an oracle judges the output.

    python tests/simulate.py --seed 7 --trace
    python tests/simulate.py --seeds 0:1000

* `shape`, `scenario`, `draw_job`, `handover`: a job as data, drawn from a seed
* `operators`, `timed`, `columns`, `connected`, `split_source`, `records`: its operators, and the system
  behind its sinks
* `oracle`, `rules`, `timed_rule`: what must come out, and the comparison
* `simulation`: one seed, and many seeds
* `cases`: scenarios that are given, not drawn
* `scripted_job`: jobs whose events a test writes down
"""
