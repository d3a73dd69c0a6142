"""The work of the contenders, function by function; plain Python without any import.

Contenders with the same work call the same functions for each record. So they differ only in the cost that
they add.
"""

KEYS = [f"sensor-{number}" for number in range(1000)]


def reading(number: int) -> int:
    """The record that a source makes from a number."""
    return number


def with_key(number: int) -> tuple[str, int]:
    """A measurement of one of a thousand sensors."""
    return KEYS[number % 1000], number & 1023


def key_of(pair: tuple[str, int]) -> str:
    """The sensor."""
    return pair[0]


def add(total: tuple[str, int], pair: tuple[str, int]) -> tuple[str, int]:
    """The next sum of a sensor."""
    return total[0], total[1] + pair[1]


def is_large(pair: tuple[str, int]) -> bool:
    """Whether a measurement is at least 256: three of four are."""
    return pair[1] >= 256


def doubled(pair: tuple[str, int]) -> tuple[str, int]:
    """A measurement in another unit."""
    return pair[0], pair[1] * 2


def measurement(number: int) -> dict[str, object]:
    """The measurement of `with_key` as a dict, with its unit."""
    return {"sensor": KEYS[number % 1000], "value": number & 1023, "unit": "C"}


def sensor_of(row: dict[str, str]) -> str:
    """The sensor of a dict."""
    return row["sensor"]


def add_rows(total: dict[str, int], row: dict[str, int]) -> dict[str, object]:
    """The next sum of a sensor, as a dict."""
    return {"sensor": row["sensor"], "value": total["value"] + row["value"], "unit": row["unit"]}


def is_large_row(row: dict[str, int]) -> bool:
    """Whether a measurement is at least 256: three of four are."""
    return row["value"] >= 256


def doubled_row(row: dict[str, int]) -> dict[str, int]:
    """A measurement in another unit, as a new dict."""
    return {**row, "value": row["value"] * 2}


def bare_sum_of_rows(count: int) -> dict[str, dict[str, object]]:
    """Running sums by key over dicts, in a loop."""
    totals: dict[str, dict[str, object]] = {}
    for number in range(count):
        row = measurement(reading(number))
        key = sensor_of(row)  # type: ignore[arg-type]
        total = totals.get(key)
        totals[key] = row if total is None else add_rows(total, row)  # type: ignore[arg-type]
    return totals


def bare_keyed_sum(count: int) -> dict[str, tuple[str, int]]:
    """Running sums by key, in a loop."""
    totals: dict[str, tuple[str, int]] = {}
    for number in range(count):
        pair = with_key(reading(number))
        key = key_of(pair)
        total = totals.get(key)
        totals[key] = pair if total is None else add(total, pair)
    return totals


def bare_chain(count: int) -> int:
    """Run map, filter and map in a loop; return the number of output records."""
    left = 0
    for number in range(count):
        pair = with_key(reading(number))
        if is_large(pair):
            doubled(pair)
            left += 1
    return left
