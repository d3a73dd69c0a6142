"""`program_ends`: set when this program ends, so that threads stop before Ray and Spark are gone."""

from __future__ import annotations

import atexit
import threading
from typing import Final

program_ends: Final = threading.Event()
atexit.register(program_ends.set)
