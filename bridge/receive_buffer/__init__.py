"""The receive buffer: holds rows from Spark for one reader of a job until a checkpoint covers them.

`receive_buffer` decides, without Ray or threads, with `frame_store` and `partition_assignment`. `messages`
are its messages, its errors, and the names of actors. `actor` is the process around it, and
`other_readers` watches the other processes that it needs.

Touches Ray and temporary files; knows nothing of PySpark. May import `arrow`.
"""
