"""The transfer of a DataFrame's rows to the receive buffers of the jobs that read it.

`transfer_service` runs in the program with the session and calls `job_buffers`, the receive buffers of one
job. `rendezvous` is the actor at which the readers of a job register. `push_partition` runs in Spark's Python
workers. `query_position` checks where a streaming query continues, and `program_end` stops threads in time.

Touches Ray and Spark. May import `receive_buffer`, `session` and `arrow`.
"""
