"""What several processes of a job use.

- What a JobMaster tells clients: `savepoint_answers`, `job_report`.
- Names of actors and of log files: `names`, `log_names`.
- How a job graph travels: `graph_shipping`, `main_classes`.
- Calls of actors: `answers` waits with a deadline, `repeated_call` calls again what does not answer.
- What a job leaves behind when it has ended: `archive`.
- Their surroundings: `system_clock`, `background` threads, `output_capture`, `cycle_collector`; and
  `fault_injection` for tests of recovery.

Imports no other folder of `actors`.
"""
