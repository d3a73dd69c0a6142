"""`PromptRunner`: background work that a test does, except for the check of a snapshot's place."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from manual_work import ManualAsyncRunner, ManualWork

T = TypeVar("T")


class PromptRunner(ManualAsyncRunner):
    """Checks places at once, as a storage that answers quickly: most tests are about what follows.

    Attributes:
        prompt: Names of the work that is done at once; other work waits.
    """

    prompt = frozenset({"prepare_place", "try_target"})

    def run(
        self,
        work: Callable[[], T],
        on_result: Callable[[T], None],
        on_error: Callable[[BaseException], None],
    ) -> ManualWork:
        if work.__name__ in self.prompt:
            item = ManualWork(work, on_result, on_error)
            item.run()
            return item
        return super().run(work, on_result, on_error)
