"""The coordinator of a user's operator: its events, its state, what is on the way, and its errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.runtime.errors import CodecError, CorruptSnapshotError, OperatorError, OperatorLocation
from penstock.runtime.operators.coordinator_host import (
    CoordinatorHost,
    EventOfCoordinator,
    EventOfSubtask,
    UserCoordinatorProvider,
)
from penstock.runtime.operators.coordinators import MissingEvents, OperatorCoordinator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.testing import CoordinatorHarness, OperatorHarness

CODEC = ValueCodec()


class Remembers(OperatorCoordinator):
    """Keeps all events, and answers each with how many there were."""

    def __init__(self, context: Any) -> None:
        self.context = context
        self.calls: list[Any] = []
        self.events: list[Any] = []

    def start(self) -> None:
        self.calls.append("start")

    def handle_event(self, subtask: int, event: Any) -> None:
        self.events.append((subtask, event))
        self.context.send_event(subtask, len(self.events))

    def checkpoint(self, checkpoint_id: int, answer: Any) -> None:
        answer.complete(self.events)

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        self.calls.append(("reset", checkpoint_id))
        self.events = list(state or ())

    def subtask_failed(self, subtask: int, reason: str) -> None:
        self.calls.append(("failed", subtask, reason))

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self.calls.append(("complete", checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self.calls.append(("aborted", checkpoint_id))

    def close(self) -> None:
        self.calls.append("close")


class Owner(Operator):
    """An operator with a coordinator that a test looks into."""

    def __init__(self, make: Callable[[Any], Any] = Remembers) -> None:
        self.make = make
        self.made: list[Any] = []

    def coordinator(self, context: Any) -> Any:
        self.made.append(self.make(context))
        return self.made[-1]


class Context:
    """The calls that a coordinator may make, noted."""

    operator_id, parallelism = "own", 2

    def __init__(self) -> None:
        self.sent: list[tuple[int, EventOfCoordinator]] = []
        self.failures: list[Any] = []

    def send_event(self, subtask: int, event: Any, answer: Any = None) -> None:
        self.sent.append((subtask, event))

    def run_in_background(self, work: Any, on_result: Any, on_error: Any) -> None:
        on_result(work())

    def fail_job(self, cause: Any) -> None:
        self.failures.append(cause)


class Answer:
    def __init__(self) -> None:
        self.state: Any = None
        self.error: Any = None

    def complete(self, state: Any) -> None:
        self.state = state

    def fail(self, error: BaseException) -> None:
        self.error = error


class Setup:
    """A coordinator that has begun from nothing, or from a state."""

    def __init__(self, make: Callable[[Any], Any] = Remembers, restored: bytes | None = None) -> None:
        self.context, self.owner = Context(), Owner(make)
        self.coordinator = CoordinatorHost(
            UserCoordinatorProvider(self.owner), self.context, CODEC, OperatorLocation("own", None, 2)
        )
        self.coordinator.reset_to_checkpoint(None if restored is None else 7, restored)
        self.coordinator.start()

    @property
    def user(self) -> Any:
        return self.owner.made[-1]

    def event(self, subtask: int, number: int, event: Any) -> None:
        self.coordinator.handle_event(subtask, EventOfSubtask(number, CODEC.dumps(event)))

    def checkpoint(self, checkpoint_id: int) -> Answer:
        answer = Answer()
        self.coordinator.checkpoint(checkpoint_id, answer)
        return answer


def test_events_of_a_subtask_are_handled_once_and_in_order_whatever_order_they_come_in() -> None:
    setup = Setup()
    for number, event in [(2, "b"), (1, "a"), (1, "a"), (4, "d"), (2, "b"), (3, "c")]:
        setup.event(0, number, event)
    setup.event(1, 1, "x")
    assert setup.user.events == [(0, "a"), (0, "b"), (0, "c"), (0, "d"), (1, "x")]


def test_events_say_behind_which_checkpoint_they_were_sent() -> None:
    setup = Setup()
    setup.event(0, 1, "a")
    setup.checkpoint(3)
    setup.event(0, 2, "b")
    assert [event.after for _, event in setup.context.sent] == [-1, 3]
    setup.coordinator.reset_to_checkpoint(3, setup.coordinator.recorded_state(3))
    setup.coordinator.start()
    setup.event(0, 1, "c")
    assert [event.after for _, event in setup.context.sent] == [-1, 3, -1]


def test_a_checkpoint_holds_the_events_in_front_of_the_subtasks_parts_and_no_others() -> None:
    setup = Setup()
    setup.event(0, 1, "before")
    setup.checkpoint(3)
    setup.event(0, 2, "on the way")
    setup.event(1, 1, "on the way, too")
    setup.event(0, 3, "behind")
    for subtask, sent in [(0, 2), (1, 1)]:
        setup.coordinator.subtask_acknowledged(3, subtask, sent)
    assert setup.coordinator.missing_events(3) == ()
    again = Setup(restored=setup.coordinator.recorded_state(3))
    assert again.user.events == [(0, "before"), (0, "on the way"), (1, "on the way, too")]
    assert again.user.calls == [("reset", 7), "start"]
    assert [(s, CODEC.loads(e.data)) for s, e in again.context.sent] == [(0, 2), (1, 3)]


def test_a_checkpoint_is_not_whole_before_an_event_in_front_of_a_part_has_come() -> None:
    setup = Setup()
    setup.checkpoint(3)
    setup.coordinator.subtask_acknowledged(3, 0, 2)
    assert setup.coordinator.missing_events(3) == (MissingEvents(0, 0, 2),)
    setup.event(0, 2, "late")
    assert setup.coordinator.missing_events(3) == (MissingEvents(0, 1, 2),)
    setup.event(0, 1, "later")
    assert setup.coordinator.missing_events(3) == ()


NUMBERS = st.integers(min_value=1, max_value=9)


@example([(0, 1), (0, 2), (0, 1)], {0: 3})
@example([(0, 2), (0, 2)], {0: 2})
@given(st.lists(st.tuples(st.integers(0, 2), NUMBERS)), st.dictionaries(st.integers(0, 2), st.integers(0, 9)))
def test_missing_events_were_sent_and_have_not_arrived(came, sent) -> None:
    """Events come in any order, and some of them twice."""
    setup = Setup()
    setup.checkpoint(1)
    for subtask, number in came:
        setup.event(subtask, number, "x")
    for subtask, last in sent.items():
        setup.coordinator.subtask_acknowledged(1, subtask, last)
    found = {s: len({n for subtask, n in came if subtask == s and n <= last}) for s, last in sent.items()}
    expected = [MissingEvents(s, found[s], last) for s, last in sorted(sent.items()) if found[s] < last]
    assert list(setup.coordinator.missing_events(1)) == expected
    assert setup.coordinator.missing_events(2) == (), "no subtask has taken a part of it"


@pytest.mark.parametrize("forgets", ["complete", "aborted", "failed", "reset", "a new start"])
def test_an_ended_checkpoint_a_failed_subtask_and_an_attempt_are_forgotten(forgets: str) -> None:
    setup = Setup()
    setup.checkpoint(4)
    setup.event(1, 1, "a")
    setup.coordinator.subtask_acknowledged(4, 1, 2)
    assert setup.coordinator.missing_events(4) == (MissingEvents(1, 1, 2),)
    match forgets:
        case "complete":
            setup.coordinator.notify_checkpoint_complete(4)
        case "aborted":
            setup.coordinator.notify_checkpoint_aborted(4)
        case "failed":
            setup.coordinator.subtask_failed(1, "it died")
        case "reset":
            setup.coordinator.subtask_reset(1, None)
        case "a new start":
            setup.coordinator.reset_to_checkpoint(None, None)
    counts_from_1 = forgets in ("failed", "reset")
    assert setup.coordinator.missing_events(4) == ((MissingEvents(1, 0, 2),) if counts_from_1 else ())


def test_events_without_a_gap_take_no_memory_each() -> None:
    setup = Setup()
    setup.event(0, 1, "x")
    of_one = len(pickle.dumps(setup.coordinator._inboxes))
    for number in (*range(3, 1001), 2):
        setup.event(0, number, "x")
    assert len(pickle.dumps(setup.coordinator._inboxes)) < of_one + 10, "they are one number"


def test_two_checkpoints_at_a_time_each_hold_their_own_events() -> None:
    setup = Setup()
    setup.checkpoint(3)
    setup.event(0, 1, "a")
    setup.checkpoint(4)
    setup.event(0, 2, "b")
    setup.coordinator.subtask_acknowledged(3, 0, 1)
    setup.coordinator.subtask_acknowledged(4, 0, 2)
    for checkpoint_id, events in [(3, ["a"]), (4, ["a", "b"])]:
        again = Setup(restored=setup.coordinator.recorded_state(checkpoint_id))
        assert [event for _, event in again.user.events] == events


def test_ended_checkpoints_are_forgotten_and_the_user_is_told() -> None:
    setup = Setup()
    for checkpoint_id in (3, 4, 5):
        setup.checkpoint(checkpoint_id)
    setup.coordinator.notify_checkpoint_aborted(5)
    setup.coordinator.notify_checkpoint_complete(4)
    setup.coordinator.notify_checkpoint_aborted(3)
    assert [setup.coordinator.recorded_state(checkpoint_id) for checkpoint_id in (3, 4, 5)] == [None] * 3
    assert setup.user.calls[2:] == [("aborted", 5), ("complete", 4), ("aborted", 3)]
    assert setup.coordinator.missing_events(5) == ()


def test_a_savepoint_that_takes_longer_than_a_newer_checkpoint_keeps_its_events() -> None:
    setup = Setup()
    setup.checkpoint(3)
    setup.event(0, 1, "a")
    setup.checkpoint(4)
    setup.coordinator.subtask_acknowledged(4, 0, 1)
    setup.coordinator.notify_checkpoint_complete(4)
    setup.coordinator.subtask_acknowledged(3, 0, 1)
    again = Setup(restored=setup.coordinator.recorded_state(3))
    assert again.user.events == [(0, "a")]


class AnswersLater(Remembers):
    """Gives its state when the test says so."""

    def checkpoint(self, checkpoint_id: int, answer: Any) -> None:
        self.calls.append((checkpoint_id, answer))


def test_a_state_that_comes_after_its_checkpoint_was_aborted_changes_nothing() -> None:
    setup = Setup(AnswersLater)
    setup.checkpoint(3)
    setup.coordinator.notify_checkpoint_aborted(3)
    setup.checkpoint(4)
    (_, late), (_, in_time) = [call for call in setup.user.calls if call[0] in (3, 4)]
    in_time.complete(["b"])
    late.complete(["a"])
    setup.event(0, 1, "x")
    assert [event.after for _, event in setup.context.sent] == [4]
    assert setup.coordinator.recorded_state(3) is None


def test_every_attempt_has_a_coordinator_of_its_own_and_closes_the_one_before() -> None:
    setup = Setup()
    first = setup.user
    setup.coordinator.subtask_failed(1, "killed")
    setup.coordinator.reset_to_checkpoint(None, None)
    setup.coordinator.start()
    assert first.calls == [("reset", None), "start", ("failed", 1, "killed"), "close"]
    assert setup.user is not first
    setup.coordinator.close()
    setup.coordinator.close()
    assert setup.user.calls == [("reset", None), "start", "close"]


@pytest.mark.parametrize(
    "what",
    ["start", "handle_event", "reset_to_checkpoint", "subtask_failed", "notify_checkpoint_complete", "close"],
)
def test_an_error_of_the_users_code_fails_the_job_with_the_operators_name(what: str) -> None:
    class Fails(Remembers):
        pass

    def fail(*_: Any) -> None:
        raise OSError("no luck")

    setattr(Fails, what, fail)
    setup = Setup(Fails)
    if what not in ("start", "reset_to_checkpoint"):
        setup.event(0, 1, "a")
        setup.coordinator.subtask_failed(0, "killed")
        setup.coordinator.notify_checkpoint_complete(1)
        setup.coordinator.close()
    (failure, *_) = setup.context.failures
    assert isinstance(failure, OperatorError)
    assert "operator 'own'" in str(failure)
    assert "coordinator Fails" in str(failure) or "coordinator Owner" in str(failure)
    assert "no luck" in str(failure)


def test_an_event_or_a_state_that_can_not_be_encoded_names_the_operator() -> None:
    class Odd(Remembers):
        def handle_event(self, subtask: int, event: Any) -> None:
            self.context.send_event(subtask, lambda: None)

        def checkpoint(self, checkpoint_id: int, answer: Any) -> None:
            answer.complete(lambda: None)

    setup = Setup(Odd)
    setup.event(0, 1, "a")
    answer = setup.checkpoint(3)
    assert setup.context.sent == []
    assert answer.state is None
    assert isinstance(answer.error, OperatorError)
    assert [("coordinator Odd" in str(f), type(f)) for f in setup.context.failures] == [
        (True, OperatorError)
    ] * 2
    assert "handle_event failed" in str(setup.context.failures[0])


def test_what_is_no_coordinator_is_refused() -> None:
    setup = Setup(lambda context: 7)
    assert "coordinator returned 7; return an OperatorCoordinator" in str(setup.context.failures[0])


def test_a_state_that_can_not_be_read_names_the_operator() -> None:
    with pytest.raises(
        CorruptSnapshotError, match=r"operator 'own'.*the state of its coordinator can't be read"
    ):
        Setup(restored=CODEC.dumps(7))


def test_an_event_that_is_none_is_a_bug() -> None:
    with pytest.raises(TypeError, match="a subtask of 'own' sent 'text'"):
        Setup().coordinator.handle_event(0, "text")


# -- the harnesses ------------------------------------------------------------------------------------------


def test_the_harness_gives_a_coordinator_its_state_and_what_was_on_its_way() -> None:
    owner = Owner()
    harness = CoordinatorHarness(owner, parallelism=2)
    assert harness.handle_event(1, "a") == [(1, 1)]
    snapshot = harness.snapshot(on_the_way=((0, "b"),))
    harness.subtask_failed(1)
    harness.close()
    again = CoordinatorHarness(owner, parallelism=3, restored=snapshot)
    assert again.sent == [(0, 2)]
    assert again.handle_event(2, "c") == [(2, 3)]
    assert owner.made[0].calls == [
        ("reset", None),
        "start",
        ("complete", 1),
        ("failed", 1, "killed"),
        "close",
    ]


def test_the_harness_raises_what_fails_the_job() -> None:
    class Fails(Remembers):
        def handle_event(self, subtask: int, event: Any) -> None:
            self.context.send_event(9, event)

    harness = CoordinatorHarness(Owner(Fails))
    with pytest.raises(OperatorError, match="has no subtask 9: its parallelism is 1"):
        harness.handle_event(0, "a")


class Talks(Operator):
    """Sends each row to its coordinator, and keeps what it is sent."""

    def open(self, context: Any) -> None:
        self.context, self.heard = context, context.operator_list_state("heard")

    def process(self, batch: Any) -> Any:
        for row in batch.rows:
            self.context.send_event(row)

    def handle_event(self, event: Any) -> None:
        self.heard.add(event)

    def end_of_data(self) -> Any:
        from penstock.operators import RowBatch

        yield RowBatch(self.heard.get())


class Coordinated(Talks):
    def coordinator(self, context: Any) -> Any:
        return Remembers(context)


def test_the_operators_harness_shows_what_was_sent_and_hands_events_in() -> None:
    with OperatorHarness.of(lambda stream: stream.transform("talks", Coordinated())) as harness:
        harness.push([1, (2,)])
        harness.handle_event({"limit": 5})
        assert harness.events == [1, (2,)]
        assert harness.end_of_data() == [{"limit": 5}]


@pytest.mark.parametrize("name", ["reset_to_checkpoint", "start", "handle_event", "checkpoint", "close"])
def test_a_method_of_a_coordinator_that_yields_fails_the_job_because_it_would_never_run(name: str) -> None:
    def generator(self: Any, *arguments: Any) -> Any:
        yield "lost"

    setup = Setup(type("Wrong", (Remembers,), {name: generator}))
    if name == "checkpoint":
        with pytest.raises(OperatorError, match="checkpoint yields, so it never runs"):
            setup.checkpoint(1)
        return
    setup.event(0, 1, "event")
    setup.coordinator.close()
    assert f"{name} yields, so it never runs" in str(setup.context.failures[0])


def test_an_operator_without_a_coordinator_can_send_nothing() -> None:
    with (
        OperatorHarness.of(lambda stream: stream.transform("talks", Talks())) as harness,
        pytest.raises(OperatorError, match="'talks' has no coordinator: give its class a method"),
    ):
        harness.push([1])


def test_an_operator_without_handle_event_says_so_and_an_event_must_have_a_code() -> None:
    class Deaf(Operator):
        def process(self, batch: Any) -> Any:
            return None

        def coordinator(self, context: Any) -> Any:
            return Remembers(context)

    with OperatorHarness.of(lambda stream: stream.transform("deaf", Deaf())) as harness:
        with pytest.raises(OperatorError, match="Deaf was sent 5 but has no handle_event"):
            harness.handle_event(5)
        with pytest.raises(CodecError):
            harness.handle_event(lambda: None)


def test_a_coordinator_calls_back_later_and_its_events_are_those_of_the_harness():
    class Reminds(OperatorCoordinator):
        def __init__(self, context):
            self._context = context

        def start(self):
            self._context.call_later(5, lambda: self._context.send_event(0, "due"))

    class Reminded(Operator):
        def coordinator(self, context):
            return Reminds(context)

    harness = CoordinatorHarness(Reminded())
    assert harness.advance(4) == []
    assert harness.advance(1) == [(0, "due")]
