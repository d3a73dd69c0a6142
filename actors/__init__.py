"""Penstock on Ray: the only part that knows Ray.

`StreamEnvironment.run` and `submit` find the executor of this package by its entry point, so most programs
never import it. `__init__.pyi` lists what is here for users: finding jobs again, handles and reports of jobs,
rows collected in the program, local clusters, and faults for tests of recovery. Each name is loaded when it
is first asked for: a subtask needs none of them.
"""

from __future__ import annotations

from penstock.runtime.misspelt_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
