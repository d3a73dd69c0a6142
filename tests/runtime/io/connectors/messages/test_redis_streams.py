"""A source reads streams of a real Redis, each entry once."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from polling import covered, eventually, failure_of, lag_of, polled, read
from serving.redis import PASSWORD, RedisServer, redis_7, redis_server

from penstock import Checkpointing, ConfigurationError, JobConfig
from penstock.formats import Json
from penstock.redis import RedisStreamSource
from penstock.runtime.errors import ConnectorError, OperatorError
from penstock.testing import SourceHarness


class Stream:
    """A stream of its own."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.key = f"s-{uuid.uuid4().hex}"
        self.client = server.client()

    def source(self, **settings: Any) -> RedisStreamSource[Any]:
        return RedisStreamSource(self.server.url, self.key, **settings)

    def numbers(self, **settings: Any) -> RedisStreamSource[Any]:
        return self.source(value_field="value", **settings)

    def put(self, *numbers: Any, at: str = "*") -> list[Any]:
        with self.client.pipeline(transaction=False) as pipeline:
            for each in numbers:
                pipeline.xadd(self.key, {"value": json.dumps(each)}, id=at)
            return list(pipeline.execute())

    def group(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(
            (each for each in self.client.xinfo_groups(self.key) if each["name"] == name), {}
        )
        return found


@pytest.fixture
def stream(shared_redis: RedisServer) -> Stream:
    return Stream(shared_redis)


@pytest.fixture
def own_server(tmp_path: Path) -> Any:
    with redis_server(tmp_path / "redis", is_durable=True) as started:
        yield started


@pytest.mark.parametrize("batch_format", ["rows", "arrow"])
def test_each_entry_is_read_once_in_its_order(stream: Stream, batch_format: Any) -> None:
    stream.put(*({"n": n} for n in range(2_000)))
    form = Json(pa.schema([("n", pa.int64())]))
    found = read(stream.numbers(bounded=True, batch_format=batch_format, value_format=form))
    assert [row["n"] for row in found] == list(range(2_000))


def test_an_entry_without_a_value_field_is_a_dict_of_texts(stream: Stream) -> None:
    stream.client.xadd(stream.key, {"user": "ann", "amount": 3})
    assert read(stream.source(bounded=True)) == [{"user": "ann", "amount": "3"}]


def test_fields_of_the_entry_stand_beside_those_of_the_value(stream: Stream) -> None:
    stream.put({"n": 1}, at="1700000000123-4")
    form = Json(pa.schema([("n", pa.int64())]))
    fields = ("stream", "id", "timestamp", "fields")
    (row,) = read(stream.numbers(bounded=True, metadata=fields))
    assert row == {
        "n": 1,
        "stream": stream.key,
        "id": "1700000000123-4",
        "timestamp": 1_700_000_000_123_000,
        "fields": [{"name": "value", "value": b'{"n": 1}'}],
    }
    (column,) = read(stream.numbers(bounded=True, metadata=fields, batch_format="arrow", value_format=form))
    assert column | {"timestamp": row["timestamp"]} == row


def test_a_restored_source_continues_behind_the_last_entry_even_from_an_older_snapshot(
    stream: Stream,
) -> None:
    stream.put(*range(9))
    with SourceHarness(stream.numbers(group="jobs")) as harness:
        assert polled(harness, 3, max_rows=1) == [0, 1, 2]
        older = covered(harness)
        assert polled(harness, 3, max_rows=1) == [3, 4, 5]
        newer = covered(harness)
    for snapshot, rest in ((newer, [6, 7, 8]), (older, [3, 4, 5, 6, 7, 8])):
        with SourceHarness(stream.numbers(group="jobs"), restored=[snapshot]) as harness:
            assert polled(harness, len(rest)) == rest


def test_streams_are_shared_among_subtasks_and_keep_their_positions_when_these_are_fewer(
    shared_redis: RedisServer,
) -> None:
    streams = [Stream(shared_redis) for _ in range(3)]
    for number, each in enumerate(streams):
        each.put(*range(number * 10, number * 10 + 4))
    source: Any = RedisStreamSource(
        shared_redis.url, [each.key for each in streams], value_field="value", bounded=True
    )
    first, snapshots = [], []
    for subtask in range(2):
        with SourceHarness(source, subtask=subtask, parallelism=2) as harness:
            first += polled(harness, 2, max_rows=1)
            snapshots.append(harness.snapshot())
    with SourceHarness(source, restored=snapshots) as harness:
        rest = polled(harness, 12 - len(first))
    assert sorted(first + rest) == [0, 1, 2, 3, 10, 11, 12, 13, 20, 21, 22, 23]


def test_a_group_learns_only_what_a_completed_checkpoint_covers(stream: Stream) -> None:
    ids = stream.put(*range(4))
    with SourceHarness(stream.numbers(group="jobs")) as harness:
        polled(harness, 2, max_rows=1)
        aborted = harness.snapshot()
        polled(harness, 2, max_rows=1)
        assert stream.client.xinfo_groups(stream.key) == []
        harness.complete_checkpoint(aborted)
        eventually(lambda: stream.group("jobs").get("last-delivered-id") == ids[1], "the group is behind 2")
        covered(harness)
        eventually(lambda: stream.group("jobs")["last-delivered-id"] == ids[3], "the group is at the end")


def test_covered_entries_are_deleted_if_the_source_may_do_so(stream: Stream) -> None:
    ids = stream.put(*range(4))
    with SourceHarness(stream.numbers(delete_covered=True)) as harness:
        polled(harness, 3, max_rows=1)
        assert stream.client.xlen(stream.key) == 4
        covered(harness)
        eventually(lambda: stream.client.xlen(stream.key) == 1, "one entry is left")
    assert [each for each, _ in stream.client.xrange(stream.key)] == ids[3:]


def test_a_source_starts_at_the_end_or_at_a_time(stream: Stream) -> None:
    stream.put(1, at="1000-0")
    stream.put(2, at="2000-0")
    at = datetime.fromtimestamp(2, UTC)
    assert read(stream.numbers(starting_position=at, bounded=True)) == [2]
    with SourceHarness(stream.numbers(starting_position="latest")) as harness:
        stream.put(3, at="3000-0")
        assert polled(harness, 1) == [3]


def test_a_bounded_source_ends_at_the_entry_that_was_the_last(stream: Stream) -> None:
    stream.put(1, 2)
    with SourceHarness(stream.numbers(bounded=True)) as harness:
        stream.put(3)
        assert polled(harness, 2) == [1, 2]
        eventually(lambda: harness.poll() or harness.is_finished, "the source ends")


def test_a_stream_that_does_not_exist_is_empty_until_it_does(stream: Stream) -> None:
    assert read(stream.numbers(bounded=True)) == []
    with SourceHarness(stream.numbers()) as harness:
        assert harness.poll() == []
        stream.put(1)
        assert polled(harness, 1) == [1]


def test_values_that_can_not_be_decoded_become_dead_letters_with_their_place(stream: Stream) -> None:
    stream.put({"n": 1})
    bad = [stream.client.xadd(stream.key, {name: "{"}) for name in ("value", "other")]
    with SourceHarness(stream.numbers(on_error="dead_letter")) as harness:
        assert polled(harness, 1) == [{"n": 1}]
        eventually(lambda: harness.poll() or len(harness.dead_letters) == 2, "both bad ones are found")
    assert [letter.origin for letter in harness.dead_letters] == [f"{stream.key}@{each}" for each in bad]
    assert harness.dead_letters[1].record == {b"other": b"{"}
    assert "has no field 'value'" in harness.dead_letters[1].error
    assert f"{stream.key}@{bad[0]}" in failure_of(stream.numbers())


def test_reads_continue_when_the_server_was_killed_and_has_come_back(own_server: RedisServer) -> None:
    stream = Stream(own_server)
    stream.put(1, 2)
    with SourceHarness(stream.numbers(group="jobs")) as harness:
        assert polled(harness, 2) == [1, 2]
        own_server.kill()
        covered(harness)
        own_server.start()
        stream.put(3)
        assert polled(harness, 1) == [3]
        covered(harness)
        eventually(lambda: stream.group("jobs"), "the group is set")


def test_a_server_that_stays_away_fails_the_attempt_and_its_password_is_not_shown(
    own_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    stream = Stream(own_server)
    own_server.kill()
    failure = failure_of(stream.numbers(give_up_after=0.2))
    assert f"stream '{stream.key}' of Redis at redis://***@127.0.0.1" in failure
    assert "gave no answer for 0.2 s" in failure
    assert PASSWORD not in failure + repr(stream.source()) + caplog.text


def test_a_wrong_password_fails_the_job_and_is_not_shown(shared_redis: RedisServer) -> None:
    url = f"redis://:wrong-word@127.0.0.1:{shared_redis.port}"
    failure = failure_of(RedisStreamSource(url, "s"))
    assert "invalid username-password" in failure
    assert "wrong-word" not in failure


def test_a_group_that_the_user_may_not_change_fails_the_job(own_server: RedisServer) -> None:
    stream = Stream(own_server)
    stream.client.execute_command("ACL SETUSER default -xgroup")
    stream.put(1)
    with SourceHarness(stream.numbers(group="jobs")) as harness:
        polled(harness, 1)
        covered(harness)
        with pytest.raises(OperatorError, match=r"can't be acknowledged or trimmed: .*xgroup"):
            polled(harness, 1)


def test_a_stream_that_was_created_again_is_an_error(stream: Stream) -> None:
    stream.put(1, at="5-0")
    with SourceHarness(stream.numbers()) as harness:
        polled(harness, 1)
        snapshot = harness.snapshot()
    stream.client.delete(stream.key)
    for put in ([], ["4-0"]):
        for at in put:
            stream.put(2, at=at)
        assert "the stream was deleted or created again" in failure_of(stream.numbers(), restored=[snapshot])


def test_an_entry_that_nothing_acknowledges_leaves_nothing_in_memory(stream: Stream) -> None:
    stream.put(*range(3))
    for settings, tokens in (({}, 0), ({"group": "jobs"}, 3)):
        with SourceHarness(stream.numbers(**settings)) as harness:
            polled(harness, 3, max_rows=1)
            assert len(harness.reader._tokens) == tokens


@pytest.mark.parametrize("settings", [{"group": "jobs"}, {"delete_covered": True}])
def test_a_job_that_acknowledges_and_takes_no_checkpoints_is_refused(settings: dict[str, Any]) -> None:
    source: Any = RedisStreamSource("redis://127.0.0.1", "s", **settings)
    with pytest.raises(ConfigurationError, match="this job takes none"):
        source.check_job_config(JobConfig())
    source.check_job_config(JobConfig(checkpointing=Checkpointing(every=1)))
    RedisStreamSource("redis://127.0.0.1", "s").check_job_config(JobConfig())


NEEDS_7 = pytest.mark.skipif(
    redis_7() is None, reason="there is no `redis-server` (Debian: apt-get install redis-server)"
)


@pytest.fixture(scope="module")
def newer_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis-7"), redis_7()) as started:
        yield started


def trimmed(stream: Stream, ids: list[Any]) -> None:
    stream.client.xtrim(stream.key, minid=ids[3], approximate=False)


def deleted(stream: Stream, ids: list[Any]) -> None:
    stream.client.xdel(stream.key, ids[4])


@NEEDS_7
@pytest.mark.parametrize("lose", [trimmed, deleted])
@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_entries_that_are_gone_before_they_were_read_are_an_error(
    newer_redis: RedisServer, lose: Any, start: Any
) -> None:
    stream = Stream(newer_redis)
    if start == "latest":
        stream.put(-2, -1)
    with SourceHarness(stream.numbers(starting_position=start)) as harness:
        harness.poll(1)
        ids = stream.put(0)
        assert polled(harness, 1, max_rows=1) == [0]
        snapshot = harness.snapshot()
        ids += stream.put(*range(1, 6))
    stream.client.xdel(stream.key, ids[0])
    stream.client.xtrim(stream.key, minid=ids[1], approximate=False)
    with SourceHarness(stream.numbers(), restored=[snapshot]) as harness:
        assert polled(harness, 5) == [1, 2, 3, 4, 5]
    lose(stream, ids)
    assert "on_lost='continue'" in failure_of(stream.numbers(), restored=[snapshot])
    with SourceHarness(stream.numbers(on_lost="continue"), restored=[snapshot]) as harness:
        assert polled(harness, 1)


@NEEDS_7
def test_entries_that_are_gone_are_noticed_by_a_job_that_has_read_none(newer_redis: RedisServer) -> None:
    stream = Stream(newer_redis)
    stream.put(-1)
    with SourceHarness(stream.numbers(starting_position="latest")) as harness:
        eventually(lambda: harness.poll(1) or harness.reader.snapshot()[0].passed, "the entries are counted")
        snapshot = harness.snapshot()
    ids = stream.put(1, 2)
    stream.client.xtrim(stream.key, minid=ids[1], approximate=False)
    assert "on_lost='continue'" in failure_of(stream.numbers(), restored=[snapshot])


@NEEDS_7
@pytest.mark.usefixtures("quick_looks")
def test_the_lag_counts_what_was_not_emitted_although_it_was_received(newer_redis: RedisServer) -> None:
    first, second = Stream(newer_redis), Stream(newer_redis)
    second.client.xdel(second.key, *second.put(1))
    source: Any = RedisStreamSource(newer_redis.url, [first.key, second.key], value_field="value")
    first.put(*range(20))
    with SourceHarness(source) as harness:
        assert polled(harness, 2, max_rows=1) == [0, 1]
        harness.reader.pause_splits({first.key})
        eventually(lambda: harness.poll(1) or lag_of(harness), "the lag is known")
        assert lag_of(harness) == {first.key: 18, second.key: 0}
        first.put(20)
        eventually(lambda: lag_of(harness)[first.key] == 19, "another entry has come")


@NEEDS_7
def test_a_stream_with_fewer_entries_than_were_read_was_created_again(newer_redis: RedisServer) -> None:
    stream = Stream(newer_redis)
    stream.put(1, 2)
    with SourceHarness(stream.numbers()) as harness:
        polled(harness, 2)
        snapshot = harness.snapshot()
    stream.client.delete(stream.key)
    stream.put(3)
    assert "the stream was deleted or created again" in failure_of(stream.numbers(), restored=[snapshot])


def test_a_key_that_is_no_stream_fails_the_job(stream: Stream) -> None:
    stream.client.set(stream.key, "x")
    assert "WRONGTYPE" in failure_of(stream.source())


def test_a_position_of_a_stream_that_the_source_does_not_have_is_refused(stream: Stream) -> None:
    stream.put(1)
    with SourceHarness(stream.numbers()) as harness:
        snapshot = harness.snapshot()
    other: Any = RedisStreamSource(stream.server.url, "other")
    with pytest.raises(OperatorError, match="Add it to streams"):
        SourceHarness(other, restored=[snapshot])


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"batch_format": "arrow"}, "needs value_field="),
        ({"starting_position": "newest"}, "starting_position='newest' is not allowed"),
        ({"metadata": ("offset",)}, "metadata='offset' is not allowed"),
        ({"streams": ()}, "give one or more names"),
        ({"streams": ("a", "a")}, "has a name twice"),
    ],
)
def test_settings_that_are_not_allowed_are_refused(settings: dict[str, Any], why: str) -> None:
    make: Callable[..., Any] = RedisStreamSource
    with pytest.raises(ConfigurationError, match=why):
        make("redis://127.0.0.1", **{"streams": "s", **settings})


def test_a_node_of_a_cluster_is_refused_when_the_job_starts_and_when_it_reads(tmp_path: Path) -> None:
    with redis_server(tmp_path, is_of_cluster=True) as node:
        reading: Any = RedisStreamSource(node.url, "orders")
        assert "is a node of a Redis Cluster, which RedisStreamSource does not support" in failure_of(reading)
        with pytest.raises(ConnectorError, match="is a node of a Redis Cluster") as found:
            RedisStreamSource(node.url, "orders", bounded=True).splits(1)
    assert PASSWORD not in str(found.value)
