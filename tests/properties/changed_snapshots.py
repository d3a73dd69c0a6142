"""Changes metadata of a snapshot where its structure allows it, and makes the checksums right again.

A changed byte is found by its checksum. Who changes a snapshot on purpose computes that anew. So the file is
taken apart, as far down as it is msgpack. That goes through metadata, inline state, lists of encoded values,
chunks of keyed state and data in flight. One to three places are changed, and all is put together again.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import msgpack
import xxhash

_SEALS: Final = (b"PENSTKLG", b"PENSTKCP", b"PSTKFLOW")
_CHUNK: Final = b"PSKS\x01"
#: An element of a channel has at most so many bytes in front of its msgpack.
_LONGEST_HEAD: Final = 24


@dataclass
class Box:
    """Bytes that hold msgpack: how to make them again.

    Attributes:
        kind: `sealed`, `sized`, `chunk`, `plain`, or `ext` with its code in `head`.
        head: What stands in front.
        value: What is inside, opened itself.
    """

    kind: str
    head: Any
    value: Any


class RunsCode:
    """Unpickled, it makes a file."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (self.path, "w")


def opened(data: bytes) -> Any:
    """Take bytes apart, as far as they are msgpack in one of the known wrappings."""
    if data[:8] == b"PENSTKLG" and data[8:10] >= b"\x00\x02":
        return Box("sized", data[:10], _inside(_unpacked(data[34:])))
    if data[:8] in _SEALS:
        return Box("sealed", data[:10], _inside(_unpacked(data[26:])))
    if data.startswith(_CHUNK):
        return Box("chunk", _CHUNK, _inside(_unpacked(data[13:])))
    for head in range(min(_LONGEST_HEAD, max(0, len(data) - 2)) + 1):
        value = _container(data[head:])
        if value is not None:
            return Box("plain", data[:head], _inside(value))
    return data


def closed(tree: Any) -> Any:
    """Put together again what `opened` has taken apart."""
    match tree:
        case Box("ext", code, value):
            inner = closed(value)
            return msgpack.ExtType(code, inner if isinstance(inner, bytes) else _packed(inner))
        case Box("sealed", head, value):
            body = _packed(closed(value))
            return head + xxhash.xxh3_128_digest(head[8:10] + body) + body
        case Box("sized", head, value):
            body = _packed(closed(value))
            body = struct.pack(">II", len(body), len(body) ^ 0xFFFFFFFF) + body
            return head + xxhash.xxh3_128_digest(head[8:10] + body) + body
        case Box("chunk", head, value):
            body = _packed(closed(value))
            return head + xxhash.xxh3_64_digest(body) + body
        case Box(_, head, value):
            return head + _packed(closed(value))
        case list():
            return [closed(each) for each in tree]
        case dict():
            return {key: closed(each) for key, each in tree.items()}
    return tree


def changed(tree: Any, random: Random, strings: list[str], code: bytes) -> bytes:
    """The bytes of a tree after one to three changes.

    Args:
        strings: Paths and names that an attacker would try.
        code: A pickle whose loading leaves a mark.
    """
    copy = Box("root", None, deepcopy(tree))
    for _ in range(random.choice([1, 1, 1, 2, 3])):
        places = list(_places(copy))
        by_kind: dict[type, list[tuple[Any, Any]]] = {}
        for holder, key in places:
            by_kind.setdefault(type(_at(holder, key)), []).append((holder, key))
        holder, key = random.choice(by_kind[random.choice(sorted(by_kind, key=str))])
        _change(holder, key, random, strings, code)
    data = closed(copy.value)
    return data if isinstance(data, bytes) else _packed(data)


def relocated(data: bytes, random: Random, places: list[str]) -> bytes:
    """The bytes of metadata whose files are said to be elsewhere; as they are when they can't be read."""
    try:
        tree = opened(data)
    except TypeError:  # what was a name in a dict is a list now
        return data
    if isinstance(tree, Box) and isinstance(tree.value, dict) and "location" in tree.value:
        tree.value["location"] = random.choice(places)
    return bytes(closed(tree))


def harmful_pickle(path: str) -> bytes:
    """A pickle that makes a file when it is loaded."""
    return pickle.dumps(RunsCode(path))


def _change(holder: Any, key: Any, random: Random, strings: list[str], code: bytes) -> None:
    old = _at(holder, key)
    anything = [None, True, [], {}, "", b"", -1, 0, 1 << 62, float("nan"), random.choice(strings), code]
    match old:
        case Box("ext"):
            new: Any = random.choice(
                [
                    Box("ext", random.randrange(64), old.value),
                    Box("ext", random.choice([1, 2, old.head]), code),
                ]
            )
        case str():
            new = random.choice([*strings, old + random.choice(strings), old[:-1], old.upper()])
        case bool() | None:
            new = random.choice(anything)
        case int() | float():
            new = random.choice([-1, 0, old + 1, old - 1, 1 << 62, -(1 << 62), 0.5, float("inf")])
        case bytes():
            new = random.choice([b"", code, old[:-1], old + old, bytes(random.randbytes(8))])
        case list() if old:
            new, at = list(old), random.randrange(len(old))
            random.choice(
                [lambda: new.pop(at), lambda: new.insert(at, new[at]), lambda: random.shuffle(new)]
            )()
        case _:
            new = random.choice(anything)
    if random.random() < 0.1:
        new = random.choice(anything)
    _put(holder, key, new)


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(tree, Box):
        inside: Iterator[Any] = iter(["value"])
    elif isinstance(tree, list):
        inside = iter(range(len(tree)))
    elif isinstance(tree, dict):
        inside = iter(list(tree))
    else:
        return
    for key in inside:
        yield tree, key
        yield from _places(_at(tree, key))


def _at(holder: Any, key: Any) -> Any:
    return holder.value if isinstance(holder, Box) else holder[key]


def _put(holder: Any, key: Any, value: Any) -> None:
    if isinstance(holder, Box):
        holder.value = value
    else:
        holder[key] = value


def _inside(value: Any) -> Any:
    match value:
        case msgpack.ExtType():
            return Box("ext", value.code, opened(value.data))
        case bytes():
            return opened(value)
        case list():
            return [_inside(each) for each in value]
        case dict():
            return {key: _inside(each) for key, each in value.items()}
    return value


def _container(data: bytes) -> Any:
    try:
        value = _unpacked(data)
    except (ValueError, TypeError, msgpack.exceptions.UnpackException):  # TypeError: a map as a key
        return None
    is_whole = isinstance(value, (list, dict, msgpack.ExtType)) and _packed(value) == data
    return value if is_whole else None


def _unpacked(data: bytes) -> Any:
    return msgpack.unpackb(
        data, ext_hook=msgpack.ExtType, strict_map_key=False, unicode_errors="surrogatepass"
    )


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, unicode_errors="surrogatepass"))
