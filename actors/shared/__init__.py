"""Code that several processes of a job use.

- The JobMaster's answers to clients: `job_report`, with `job_summaries`, and `snapshot_answers`. `telemetry`
  makes traces of them.
- Which process serves which job: `registry`. What a job has left in its process: `process_residue` and
  `process_state`.
- How a job graph travels: `graph_shipping`. Calls of actors: `actor_calls`.
- What a job leaves when it has ended: `archive`.
- Their surroundings: `system_ports`, `output_capture`, `log_files`, `node_processes`, and `fault_injection`
  for tests of recovery.

Imports no other folder of `actors`.
"""
