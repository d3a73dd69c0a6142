"""The receive buffer: where rows from Spark wait for one reader of a job until a checkpoint covers them.

`receive_buffer` decides (no Ray, no threads), with `open_epoch`, `closed_epochs`, `frame_store` and
`partition_assignment`; `messages` is what it exchanges. `actor` is the process around it, with
`registration`, `backlogs` and `liveness`. `actor_names` are the names of the bridge's actors, `errors` says
what a job reports when rows are lost.

Touches Ray and temporary files; knows nothing of PySpark. May import `arrow`.
"""
