"""The transfer of a DataFrame's rows to the receive buffers of the jobs that read it.

`transfer_service` runs in the program with the session; readers of a job register at its rendezvous.
`job_buffers` are the receive buffers of one job, as the program calls them. `push_partition` runs in Spark's
Python workers.

Touches Ray and Spark. May import `receive_buffer`, `session` and `arrow`.
"""
