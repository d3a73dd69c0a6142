"""Splits on request: the coordinator with a real holder, and the reader that asks."""

from __future__ import annotations

import pyarrow as pa
import pytest
from manual_work import ManualAsyncRunner

from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.errors import ConfigurationError, OperatorError, OperatorLocation, PenstockError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.operators.coordinator_host import CoordinatorHost, EventOfSubtask
from penstock.runtime.operators.hybrid_source import HybridSource
from penstock.runtime.operators.requested_splits import RequestedSplits
from penstock.runtime.operators.source import NeededColumns, Polled
from penstock.runtime.operators.source_coordinator import (
    NO_MORE_SPLITS,
    SPLIT_REQUEST,
    OnRequest,
    OnRequestEnumerator,
    SourceCoordinatorProvider,
)
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.record.value_codec import ValueCodec

CODEC = ValueCodec()


class Folder:
    """A source of five splits."""

    def __init__(self, splits=("a", "b", "c", "d", "e"), error=None):
        self.names, self.error, self.listed = splits, error, 0

    def splits(self, parallelism):
        self.listed += 1
        if self.error is not None:
            raise self.error
        return self.names

    def reader(self, context, splits):
        return CollectionSource("".join(splits)).reader(context, [(0, len(splits))])


class Run:
    """One source coordinator and what its readers are sent."""

    def __init__(self, source=None, kind=OnRequest):
        self.source = source or Folder()
        self.sent, self.failures = [], []
        self.runner = ManualAsyncRunner()
        location = OperatorLocation("read", None, 2)
        self.holder = OperatorCoordinatorHolder(
            "read",
            lambda: 2,
            lambda context: CoordinatorHost(
                SourceCoordinatorProvider(kind(self.source), location), context, CODEC, location
            ),
            self,
            self.runner,
            self.failures.append,
        )
        self.asked = [0, 0]
        self.under_way = None

    def send(self, subtask, event, answer):
        self.sent.append((subtask, event))
        if self.under_way is None:
            answer.sent()
        else:
            self.under_way.append(answer)

    def begin(self, checkpoint_id=None, state=None):
        self.asked = [0, 0]
        self.holder.reset_to_checkpoint(checkpoint_id, state)
        self.holder.start()
        return self

    def ask(self, subtask):
        self.asked[subtask] += 1
        self.holder.handle_event(subtask, request(self.asked[subtask]))
        return self.take()

    def take(self):
        sent, self.sent = self.sent, []
        return [(subtask, CODEC.loads(event.data)) for subtask, event in sent]

    def checkpoint(self, checkpoint_id):
        states = []
        self.holder.checkpoint(checkpoint_id, states.append, states.append)
        self.holder.after_barrier_injection(checkpoint_id)
        [state] = states
        return state


def test_splits_are_listed_once_in_the_background_and_handed_out_to_whoever_asks():
    run = Run().begin()
    assert run.ask(1) == []
    run.runner.run_all()
    assert run.take() == [(1, ("a",))]
    assert [run.ask(s) for s in (0, 1, 1, 0)] == [[(0, ("b",))], [(1, ("c",))], [(1, ("d",))], [(0, ("e",))]]
    assert run.ask(0) == [(0, None)]
    assert run.source.listed == 1


def test_a_request_that_comes_twice_is_served_once():
    run = Run().begin()
    run.runner.run_all()
    assert run.ask(0) == [(0, ("a",))]
    run.holder.handle_event(0, request(1))
    assert run.take() == []


def test_a_split_that_is_assigned_while_a_checkpoint_starts_is_only_with_the_enumerator():
    run, states = Run().begin(), []
    run.runner.run_all()
    run.under_way = []
    assert run.ask(0) == [(0, ("a",))]
    run.holder.checkpoint(1, states.append, states.append)
    assert run.ask(1) == []
    assert states == []
    run.under_way.pop().sent()
    state, on_the_way = CODEC.loads(states[0])
    assert CODEC.loads(state) == (True, ["b", "c", "d", "e"])
    assert on_the_way == []
    run.holder.after_barrier_injection(1)
    assert run.take() == [(1, ("b",))]


def test_after_a_restore_what_was_not_handed_out_is_handed_out_and_nothing_is_listed_again():
    run = Run().begin()
    run.runner.run_all()
    run.ask(0)
    state = run.checkpoint(1)
    run.ask(1)
    again = Run().begin(1, state)
    again.runner.run_all()
    assert again.source.listed == 0
    assert [again.ask(0) for _ in range(5)] == [[(0, (s,))] for s in "bcde"] + [[(0, None)]]


def test_a_checkpoint_before_the_splits_are_listed_lists_them_after_the_restore():
    state = Run().begin().checkpoint(1)
    again = Run().begin(1, state)
    again.runner.run_all()
    assert again.ask(0) == [(0, ("a",))]


def test_a_reader_that_fails_gives_back_what_no_checkpoint_of_its_own_covers():
    run = Run().begin()
    run.runner.run_all()
    run.ask(0)
    run.checkpoint(1)
    run.holder.notify_checkpoint_complete(1)
    run.ask(0)
    run.checkpoint(2)
    run.ask(0)
    run.ask(1)
    run.holder.subtask_failed(0, "killed")
    run.holder.subtask_reset(0, 1)
    run.asked[0] = 0
    assert [run.ask(1), run.ask(0), run.ask(1)] == [[(1, ("b",))], [(0, ("c",))], [(1, ("e",))]]
    assert run.ask(0) == [(0, None)]


def test_a_reader_that_is_gone_is_sent_nothing_and_loses_nothing():
    run = Run().begin()
    run.ask(0)
    run.holder.subtask_failed(0, "killed")
    run.runner.run_all()
    assert run.take() == []
    run.holder.subtask_reset(0, None)
    run.asked[0] = 0
    assert run.ask(0) == [(0, ("a",))]


def test_a_reader_that_is_gone_does_not_wait_any_more_and_can_not_ask():
    run = Run().begin()
    run.ask(0)
    run.holder.subtask_failed(0, "killed")
    assert run.ask(0) == []
    run.holder.subtask_reset(0, None)
    run.runner.run_all()
    assert run.take() == [], "only its predecessor has asked"
    run.asked[0] = 0
    assert run.ask(0) == [(0, ("a",))]


def test_a_reader_is_told_once_that_there_is_no_more_and_again_when_it_comes_back():
    run = Run(Folder(())).begin()
    run.runner.run_all()
    assert run.ask(0) == [(0, None)]
    assert run.ask(0) == []
    run.holder.subtask_failed(0, "killed")
    run.holder.subtask_reset(0, None)
    run.asked[0] = 0
    assert run.ask(0) == [(0, None)]


def test_a_source_that_can_not_be_listed_fails_the_job_and_is_named():
    run = Run(Folder(error=FileNotFoundError("no such folder"))).begin()
    run.runner.run_all()
    [error] = run.failures
    assert isinstance(error, OperatorError)
    assert "operator 'read'" in str(error)
    assert "no such folder" in str(error)


class Retrying(OnRequest):
    """A source whose enumerator asks a catalogue in the background, and has a bug in its error handler."""

    def enumerator(self, context, state):
        return RetryingEnumerator(self._source, context, state)


class RetryingEnumerator(OnRequestEnumerator):
    def start(self):
        self._context.run_in_background(self.ask_catalogue, print, self.catalogue_failed)

    def ask_catalogue(self):
        raise TimeoutError("no catalogue")

    bug = KeyError

    def catalogue_failed(self, error):
        raise self.bug("retries left")


@pytest.mark.parametrize("bug", [KeyError, KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_on_error_that_raises_fails_the_job_and_its_source_is_named(monkeypatch, bug):
    monkeypatch.setattr(RetryingEnumerator, "bug", bug)
    run = Run(kind=Retrying).begin()
    run.runner.run_all()
    [error] = run.failures
    assert isinstance(error, OperatorError)
    assert "operator 'read': source Retrying: on_error of background work failed" in str(error)
    assert "retries left" in str(error)
    assert "in catalogue_failed" in str(error)


def test_a_checkpoint_of_the_time_when_splits_were_given_out_at_the_start_is_refused():
    with pytest.raises(PenstockError, match="this source had no enumerator"):
        Run().begin(7, None)


def request(number):
    """The request of a reader."""
    return EventOfSubtask(number, CODEC.dumps(SPLIT_REQUEST))


class Reader:
    def __init__(self, splits=()):
        self.requests = []
        self.reader = RequestedSplits(Folder(), None, splits, self.requests.append)

    def poll(self):
        polled = self.reader.poll(10)
        rows = None if polled.batch is None else "".join(polled.batch.rows)
        return rows, polled.finished


def test_a_reader_reads_what_it_has_asks_when_it_has_nothing_and_ends_when_there_is_no_more():
    run = Reader(["x", "y"])
    assert run.poll() == ("xy", False)
    assert run.requests == [SPLIT_REQUEST]
    assert run.poll() == (None, False)
    assert run.requests == [SPLIT_REQUEST]
    run.reader.handle_event(("a",))
    assert run.reader.snapshot() == ["a"]
    assert run.poll() == ("a", False)
    assert run.requests == [SPLIT_REQUEST] * 2
    run.reader.handle_event(NO_MORE_SPLITS)
    assert run.poll() == (None, True)
    assert run.reader.snapshot() == []


def test_splits_that_come_while_it_reads_wait_and_are_in_every_snapshot():
    run = Reader(["x"])
    run.reader.poll(0)
    run.reader.handle_event(("b",))
    run.reader.handle_event(NO_MORE_SPLITS)
    assert run.reader.snapshot()[-1] == "b"
    assert run.poll() == ("x", False)
    assert run.poll() == ("b", True)
    assert run.requests == []


class Adds:
    """A reader that takes further splits while it reads."""

    def __init__(self, splits):
        self.splits = list(splits)

    def poll(self, max_rows):
        return Polled(RowBatch(self.splits[:1]))

    def add_splits(self, splits):
        self.splits += splits

    def snapshot(self):
        return self.splits

    def close(self):
        pass


class Adding(Folder):
    def reader(self, context, splits):
        return Adds(splits)


def test_a_reader_that_adds_splits_gets_those_that_come_while_it_reads():
    reader = RequestedSplits(Adding(), None, ["a"], [].append)
    reader.poll(1)
    reader.handle_event(("b", "c"))
    assert reader.snapshot() == ["a", "b", "c"]
    assert reader._reader.splits == ["a", "b", "c"]


def test_a_live_source_that_adds_splits_gets_those_that_come_while_it_reads():
    hybrid = HybridSource(Folder(), then=Adding())
    reader = RequestedSplits(hybrid, None, [(1, None, "a")], [].append)
    reader.poll(1)
    reader.handle_event(((1, None, "b"), (0, None, "early")))
    assert reader.snapshot() == [(1, None, "a"), (1, None, "b"), (0, None, "early")]
    assert reader._reader._reader.splits == ["a", "b"]


def test_a_reader_that_triggers_checkpoints_is_refused():
    closed = []

    class Needy(Folder):
        def reader(self, context, splits):
            reader = super().reader(context, splits)
            reader.close = lambda: closed.append(True)
            reader.should_trigger_checkpoint = lambda: None
            return reader

    requested = RequestedSplits(Needy(), None, ["a"], [].append)
    with pytest.raises(PenstockError, match=r"CollectionReader is an .*its splits come from an enumerator"):
        requested.poll(1)
    requested.close()
    assert closed == [True]


@pytest.mark.parametrize("method", ["start", "handle_split_request", "reader_failed", "close"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_method_of_an_enumerator_that_never_runs_fails_the_job(method, is_async):
    async def waits(self, *_):
        """Never awaited."""

    def yields(self, *_):
        yield "never reached"

    broken = type("Broken", (OnRequestEnumerator,), {method: waits if is_async else yields})

    class Wrapped(OnRequest):
        def enumerator(self, context, state):
            return broken(self._source, context, state)

    run = Run(kind=Wrapped).begin()
    run.ask(0)
    run.holder.subtask_failed(0, "lost")
    run.holder.close()
    says = "`async def`" if is_async else "yields"
    assert any(method in str(failure) and says in str(failure) for failure in run.failures)


@pytest.mark.parametrize(
    "splits", ["a", b"a", {"path": "a"}, {"a"}, iter(["a"]), 7], ids=lambda s: type(s).__name__
)
def test_splits_that_are_no_list_are_refused_before_one_is_lost(splits):
    class Wrong(OnRequestEnumerator):
        def handle_split_request(self, subtask):
            self._context.assign(subtask, splits)

    class Wrapped(OnRequest):
        def enumerator(self, context, state):
            return Wrong(self._source, context, state)

    run = Run(kind=Wrapped).begin()
    assert run.ask(0) == []
    [failure] = run.failures
    assert "assign takes a list of splits, not" in str(failure)
    assert "source Wrapped: handle_split_request failed" in str(failure)


@pytest.mark.parametrize("source", [5, Folder, None])
def test_only_a_source_can_be_wrapped(source):
    with pytest.raises(ConfigurationError, match="OnRequest needs a source, not "):
        OnRequest(source)


def test_a_wrapped_source_says_what_the_source_says_of_itself():
    folder = Folder()
    assert (OnRequest(folder).only_reads, OnRequest(folder).arrow_schema) == (False, None)
    assert OnRequest(folder).reading(NeededColumns(("k",))).splits(2) == folder.names
    folder.only_reads, folder.arrow_schema = True, pa.schema({"k": pa.int64()})
    assert (OnRequest(folder).only_reads, OnRequest(folder).arrow_schema) == (True, folder.arrow_schema)
