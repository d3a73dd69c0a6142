"""Execution: which process runs which subtask, and what the calls between processes mean.

- `role`: who a process is, whatever it is called; `role_holder`: which calls a process takes.
- `lease`: when a process that hears nothing ends itself.
- `deliveries`: when a sender is given its credits back; `delivery_answer`: what it does with the answer.
- `absence`: when a call that reached nobody is made again, and when its receiver counts as gone.

Decides only: processes, calls, time and timers are ports. `actors/` gives the real ones, `testing/simulation`
simulated ones. Imports `job`, `task` and what lies below.
"""
