"""What several processes of a job use.

- What a JobMaster tells clients: `job_report`, with `job_summaries` and `failure_text`, and
  `savepoint_answers`. `trace_spans` makes traces of it.
- Names of actors and of log files: `names`, `log_names`. `process_registry` and `master_registry`: which job
  a process serves. `traces`: what a job has left in its process.
- How a job graph travels: `graph_shipping`, `main_classes`.
- Calls of actors: `answers` waits with a deadline, `repeated_call` calls again what does not answer.
- What a job leaves when it has ended: `archive`; `old_reports` reads what version 0.1 has left.
- Their surroundings: `system_clock`, `background` threads, `output_capture`, `cycle_collector`; and
  `fault_injection` for tests of recovery.

Imports no other folder of `actors`.
"""
