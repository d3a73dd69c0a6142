"""Tells whether a block of CSV ends between two rows, and whether Arrow and Python read it alike.

Both follow RFC 4180. They differ outside of it: quotes within an unquoted field, text behind a closing
quote, a carriage return that ends no line. Where quotes stand only where they may, every
second quote closes a field. So the number of quotes says whether the block ends within one.
"""

from __future__ import annotations

from enum import Enum

import numpy as np


class Quoting(Enum):
    """How a block of whole lines is quoted."""

    #: It ends between two rows.
    CLOSED = "closed"
    #: It ends within a quoted field.
    OPEN = "open"
    #: Quotes or line ends stand where the standard does not allow them.
    IRREGULAR = "irregular"


def quoting_of(block: bytes, delimiter: int, quote: int = ord('"'), line_end: bytes = b"\n") -> Quoting:
    r"""How a block of whole lines is quoted that begins between two rows.

    Args:
        delimiter: The byte that separates fields.
        quote: The byte around quoted fields; -1 for none.

    Example:
        >>> [quoting_of(block, ord(",")).value for block in (b'1,"a\n', b'1,"a\nb"\n', b'1,5" disk\n')]
        ['open', 'closed', 'irregular']
    """
    if line_end == b"\r":
        if b"\n" in block:
            return Quoting.IRREGULAR
    elif b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return Quoting.IRREGULAR
    if quote < 0 or quote not in block:
        return Quoting.CLOSED
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == quote)
    opening, closing = quotes[::2], quotes[1::2]
    before = data[opening[1:] - 1] if opening[0] == 0 else data[opening - 1]
    after = data[np.minimum(closing + 1, len(data) - 1)]
    if not np.isin(before, (ord(line_end), delimiter, quote)).all():
        return Quoting.IRREGULAR
    if not np.isin(after, (*b"\r\n", delimiter, quote)).all():
        return Quoting.IRREGULAR
    return Quoting.OPEN if len(quotes) % 2 else Quoting.CLOSED
