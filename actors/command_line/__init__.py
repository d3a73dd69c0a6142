"""The commands `penstock list`, `status`, `logs` and so on.

`app` has the commands about jobs, `snapshots` those about checkpoints and savepoints, `views` makes tables
and texts of what they show, and `common` has the options that they share. `python -m
penstock.actors.command_line` runs the same commands. Nothing imports this folder. It may import `client` and
everything below.
"""
