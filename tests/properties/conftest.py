"""Laws are about what happens, never about how long it takes: a busy machine is no failure of a law."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("laws", deadline=None)
settings.load_profile("laws")
