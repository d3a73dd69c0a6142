"""Code that several processes of a job use.

- The JobMaster's answers to clients: `job_report`, with `job_summaries`, and `snapshot_answers`. `telemetry`
  makes traces from reports.
- Assignment of processes to jobs: `registry`. Remains of a job in its process: `process_residue` and
  `process_state`.
- Shipping of a job graph: `graph_shipping`. Calls of actors: `actor_calls`.
- Reports of ended jobs: `archive`. Output and log lines: `output_capture`.
- Clock, timers and threads: `system_ports`. Observing and killing processes of a node: `node_processes`.

Imports no other folder of `actors`.
"""
