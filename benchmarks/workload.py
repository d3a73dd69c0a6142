"""The work that every contender does, a function for a function; plain Python without any import.

Each record costs one call of every function, so what is left between two contenders is what they add.
"""

KEYS = [f"sensor-{number}" for number in range(1000)]


def reading(number: int) -> int:
    """The record of a number, as a source makes it."""
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
    """Three of four measurements."""
    return pair[1] >= 256


def doubled(pair: tuple[str, int]) -> tuple[str, int]:
    """A measurement in another unit."""
    return pair[0], pair[1] * 2


def bare_keyed_sum(count: int) -> dict[str, tuple[str, int]]:
    """A running sum a key, in a loop."""
    totals: dict[str, tuple[str, int]] = {}
    for number in range(count):
        pair = with_key(reading(number))
        key = key_of(pair)
        total = totals.get(key)
        totals[key] = pair if total is None else add(total, pair)
    return totals


def bare_chain(count: int) -> int:
    """map, filter, map in a loop; how many records come out."""
    left = 0
    for number in range(count):
        pair = with_key(reading(number))
        if is_large(pair):
            doubled(pair)
            left += 1
    return left
