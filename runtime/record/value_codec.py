"""The codec of single values: what goes through it comes back equal and of the same type."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock.runtime.record.class_directory import ClassDirectory
from penstock.runtime.record.pickle_fallback import PickleFallback
from penstock.runtime.record.type_lowering import TypeLowering
from penstock.runtime.record.value_decoder import ValueDecoder
from penstock.runtime.record.value_encoder import ValueEncoder


@dataclass(frozen=True, slots=True)
class CodecStatistics:
    """What a codec had to pickle.

    Attributes:
        pickled: Values written as pickle.
        unpickled: Values read from pickle.
        pickled_types: Names of the first types that were pickled.
    """

    pickled: int = 0
    unpickled: int = 0
    pickled_types: tuple[str, ...] = ()


class ValueCodec:
    """Encodes values as msgpack with extensions, and decodes them.

    Kept exactly are `None`, bool, int of any size, float, complex, Decimal, Fraction, str, bytes, bytearray,
    UUID, datetime, date, time and timedelta. So are list, tuple, dict, set, frozenset, deque, enum members,
    numpy scalars and arrays, named tuples and dataclasses. All else, subclasses of the above included, is
    pickled.

    Equal values of one type give equal bytes, except for sets and pickles. Shared references become copies.

    Example:
        >>> from decimal import Decimal
        >>> codec = ValueCodec(allow_pickle=False)
        >>> codec.loads(codec.dumps({"price": Decimal("1.10"), "at": (1, 2.0)}))
        {'price': Decimal('1.10'), 'at': (1, 2.0)}
    """

    def __init__(self, allow_pickle: bool = True, classes: Iterable[type] = ()) -> None:
        """Create a codec.

        Args:
            allow_pickle: Whether values without a kind of their own may be written and read as pickle.
                Without it the data also can't make a user's module be imported.
            classes: Classes of records, enums and pickled objects that can't be found through their module in
                this process, such as those of a job's `__main__`.
        """
        self._allow_pickle = allow_pickle
        self._classes = tuple(classes)
        directory = ClassDirectory(self._classes, may_import=allow_pickle)
        self._pickles = PickleFallback(allow_pickle, directory)
        self._encoder = ValueEncoder()
        self._encoder.resolve_with(TypeLowering(self._encoder, directory, self._pickles).resolve)
        self._decoder = ValueDecoder(directory, self._pickles)
        #: Codecs that other threads have used and given back; appending and popping are atomic.
        self._idle: deque[ValueCodec] = deque()

    @property
    def allows_pickle(self) -> bool:
        """Whether values may be pickled."""
        return self._allow_pickle

    def dumps(self, value: Any) -> bytes:
        """Encode a value.

        Raises:
            CodecError: It can't be encoded, contains itself, or needs pickle where pickle is refused.
        """
        return self._encoder.encode(value)

    def loads(self, data: bytes | bytearray | memoryview) -> Any:
        """Decode a value.

        Raises:
            CodecError: The data is damaged, names a class that is not known here, or holds a pickle where
                pickle is refused.
        """
        return self._decoder.decode(data)

    @contextmanager
    def for_another_thread(self) -> Iterator[ValueCodec]:
        """A codec with the same settings, to be used until the end of the `with`.

        One codec serves one thread: its packer has a buffer of its own. That makes it large, and its parts
        refer to each other, so that only Python's cycle collector would free it; codecs are used again.
        """
        try:
            codec = self._idle.pop()
        except IndexError:
            codec = ValueCodec(self._allow_pickle, self._classes)
        try:
            yield codec
        finally:
            self._idle.append(codec)

    def statistics(self) -> CodecStatistics:
        """What was pickled so far."""
        pickles = self._pickles
        return CodecStatistics(pickles.pickled, pickles.unpickled, tuple(pickles.types))
