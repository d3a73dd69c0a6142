"""JSON as browsers read it: Python writes `NaN` and `Infinity`, which are none."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any


def dumps(value: Any) -> str:
    """JSON; a gauge of the user's that stands at NaN or infinity is `null`.

    Example:
        >>> dumps({"queue": [1.5, float("nan")]})
        '{"queue": [1.5, null]}'
    """
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not isfinite(value) else value
