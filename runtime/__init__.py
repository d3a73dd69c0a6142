"""Penstock's public names: `from penstock.runtime import StreamEnvironment`.

`__init__.pyi` lists them. Each name is loaded when it is first asked for. So users find the graph, the
settings and the connectors in one place, and importing a part of the runtime imports only that part.
Otherwise the pure parts would load `penstock.runtime.io` (files, object stores) through this file, and every
subtask would pay for modules that it never uses.
"""

from __future__ import annotations

from penstock.runtime.misspelt_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
