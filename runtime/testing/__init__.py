"""Tests without a cluster: the operator harness, and the simulation of whole jobs.

Users import from here; `__init__.pyi` lists the names. `simulate` runs a job of theirs under a thousand
courses of events. `OperatorHarness` and `SourceHarness` drive one operator step by step. All run the code
that runs on a cluster; time, processes, network and storage are simulated. Nothing in the runtime imports
this package.
"""

from __future__ import annotations

from penstock.runtime.misspelt_names import public_names

__getattr__, __dir__, __all__ = public_names(__name__, __file__)
