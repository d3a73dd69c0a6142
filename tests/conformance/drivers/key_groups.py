"""Asks the facts on key groups.

Flink's hashes are rebuilt here: jobs hash otherwise, the ranges are the same. Facts on the hashes alone test
this driver and not the product (`DRIVER_FACTS`), so they are counted apart.
"""

from __future__ import annotations

import struct
from typing import Any

from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.key_groups import default_max_parallelism, key_group_range, subtask_of_key_group

SUITES = ("key_groups",)

#: Facts that only the hashes in this file answer.
DRIVER_FACTS = frozenset({"murmur", "java_string_hash", "java_long_hash"})

M32 = 0xFFFFFFFF


def signed(code: int) -> int:
    return (code & M32) - (1 << 32) if code & 0x80000000 else code & M32


def rotate(code: int, by: int) -> int:
    return ((code << by) | (code >> (32 - by))) & M32


def murmur(code: int) -> int:
    """Murmur3 of one 32-bit word, made non-negative the way Flink's `MathUtils` does."""
    word = rotate((code & M32) * 0xCC9E2D51 & M32, 15) * 0x1B873593 & M32
    mixed = (rotate(word, 13) * 5 + 0xE6546B64 & M32) ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B & M32
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 & M32
    mixed = signed(mixed ^ mixed >> 16)
    return 0 if mixed == -(1 << 31) else abs(mixed)


def java_string_hash(text: str) -> int:
    code = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le")):
        code = (31 * code + unit) & M32
    return signed(code)


def java_long_hash(number: int) -> int:
    bits = number & (1 << 64) - 1
    return signed(bits ^ bits >> 32)


def java_hash(key: Any, key_type: str | None) -> int:
    if isinstance(key, str):
        return java_string_hash(key)
    return java_long_hash(key) if key_type == "long" else signed(key)


def java_key_group(fact: dict[str, Any]) -> dict[str, Any]:
    group = murmur(java_hash(fact["key"], fact.get("key_type"))) % fact["max_parallelism"]
    return {
        "key_group": group,
        "subtask": subtask_of_key_group(group, fact["parallelism"], fact["max_parallelism"]),
    }


def ranges(fact: dict[str, Any]) -> dict[str, Any]:
    of = [
        key_group_range(index, fact["parallelism"], fact["max_parallelism"])
        for index in range(fact["parallelism"])
    ]
    return {"ranges": [[r.first, r.last] for r in of]}


def intersection(fact: dict[str, Any]) -> dict[str, Any]:
    common = KeyGroupRange(*fact["a"]).intersection(KeyGroupRange(*fact["b"]))
    return {"range": [common.first, common.last] if len(common) else None}


ANSWERS = {
    "murmur": lambda fact: {"hash": murmur(fact["code"])},
    "java_string_hash": lambda fact: {"hash": java_string_hash(fact["key"])},
    "java_long_hash": lambda fact: {"hash": java_long_hash(fact["key"])},
    "key_group": java_key_group,
    "ranges": ranges,
    "subtask_of_group": lambda fact: {
        "subtask": subtask_of_key_group(fact["key_group"], fact["parallelism"], fact["max_parallelism"])
    },
    "default_max_parallelism": lambda fact: {"max_parallelism": default_max_parallelism(fact["parallelism"])},
    "intersection": intersection,
    "range_size": lambda fact: {"size": len(KeyGroupRange(*fact["range"]))},
}


def tests_product(case: dict[str, Any]) -> bool:
    """Whether any fact of a case is answered by the product."""
    return any(fact["fact"] not in DRIVER_FACTS for fact in case["facts"])


def replay(suite: str, case: dict[str, Any]) -> list[str]:
    """Every fact of a case that does not hold."""
    return [difference for fact in case["facts"] if (difference := _difference(fact)) is not None]


def _difference(fact: dict[str, Any]) -> str | None:
    if fact["fact"] not in ANSWERS:
        return f"nobody here knows the fact {fact['fact']!r}"
    refused = fact["expect"].get("error") == "illegal_argument"
    try:
        answer = ANSWERS[fact["fact"]](fact)
    except ValueError as error:
        return None if refused else f"{fact}: refused ({error})"
    if refused:
        return f"{fact}: not refused, but answered with {answer}"
    return None if answer == fact["expect"] else f"{fact}: it is {answer}"
