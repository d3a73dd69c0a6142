"""Penstock on Ray: clients, JobMasters, subtasks and commands.

`StreamEnvironment.run` and `submit` find the executor by its entry point, so most programs never import this
package. `penstock` and `penstock.cluster` have its public names.

Its folders are laid out by process. Each may import the folders below it in this list, and
`penstock.runtime`:

- `command_line`: the commands `penstock list`, `status` and so on;
- `web`: the server of `penstock ui`;
- `client`: the program that submits or observes a job;
- `template`: the process from which a local cluster forks its workers;
- `master`: the process of a job's JobMaster;
- `subtask`: the process of one subtask;
- `shared`: code that several of these processes use.
"""
