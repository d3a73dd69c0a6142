"""Penstock on Ray: the only part that knows Ray.

`StreamEnvironment.run` and `submit` find the executor by its entry point, so most programs never import this
package. `__init__.pyi` lists its public names, which are loaded when they are first used.

Its folders are laid out by process. Each may import those below it, and `penstock.runtime`:

- `command_line`: the commands `penstock list`, `status` and so on;
- `client`: the program that submits a job, or looks at one;
- `master`: the process of a job's JobMaster;
- `subtask`: the process of one subtask;
- `shared`: what several of them use.
"""

from __future__ import annotations

from penstock.runtime.misspelt_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
