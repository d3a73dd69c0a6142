"""Sends the first requests of a process from several threads at once, and prints what they raise."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from penstock.runtime.io.connectors.kafka.transaction_requests import (
    TransactionError,
    describe_transaction,
    end_transaction,
    list_transactions,
)

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
REQUESTS: list[Callable[[], object]] = [
    lambda: end_transaction(NOWHERE, "id", 1, 0, commit=True, timeout=0.05),
    lambda: describe_transaction(NOWHERE, "id", timeout=0.05),
    lambda: list_transactions(NOWHERE, timeout=0.05),
]


def raised_by(request: Callable[[], object]) -> str:
    try:
        request()
    except (TransactionError, ImportError) as error:
        return type(error).__name__
    return "an answer"


if __name__ == "__main__":
    sys.setswitchinterval(1e-5)
    with ThreadPoolExecutor(len(REQUESTS)) as threads:
        print(*sorted(set(threads.map(raised_by, REQUESTS))))
