"""Makes `replay` and `drivers` importable: they lie beside `replay.py`, which is a program too."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
