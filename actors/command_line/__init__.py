"""The commands `penstock list`, `status`, `logs` and so on.

- `app`: commands about jobs, and the entry point, which `python -m penstock.actors.command_line` also calls.
- `cancel`: the end of a job, and its question.
- `doctor`: whether jobs can run here; `checks` has the checks that start no cluster and open no storage.
- `snapshots`: commands about checkpoints and savepoints.
- `submit`: runs a program on the cluster.
- `upgrade`: replaces the program of a job.
- `kafka`: the lag of Kafka sources, and transactions of Kafka sinks.
- `monitoring`: a dashboard for Grafana, and alert rules for Prometheus.
- `web`: the server of `penstock ui`.
- `views`: the tables and texts that commands show.
- `common`: options that commands share, the search for a job, and printing.

Only further checks of `doctor` import this folder. It may import `web`, `client` and everything below.
"""
