"""The partial matches of a key: what has changed since they were read, and which have the same state."""

from __future__ import annotations

from pattern_setup import OneKey, begin, then

from penstock.runtime.operators.patterns.key_matches import MANY, KeyMatches


def read_again(one: OneKey) -> KeyMatches:
    of_key = one.of_key
    saved = {number: tuple(match) for number, match in {**of_key.partial, **of_key.held}.items()}
    return KeyMatches.of(saved, of_key.records)


def test_matches_that_were_read_have_not_changed() -> None:
    of_key = read_again(OneKey(then(begin("a"), "followed_by", "b")).push("a1 a2"))
    assert (of_key.changed, of_key.added, of_key.deleted) == (set(), set(), set())


def test_a_record_changes_only_the_partial_matches_that_take_it() -> None:
    one = OneKey(then(then(begin("a"), "followed_by", "b"), "followed_by", "c")).push("a1 b1 a2")
    one.of_key = read_again(one)
    one.push("c1")
    assert (one.of_key.changed, one.of_key.deleted) == ({0}, {0, 1})


def test_many_partial_matches_at_the_same_step_have_one_state() -> None:
    one = OneKey(then(then(begin("a"), "followed_by", "b"), "followed_by", "c"))
    one.push("a1 a2 b1 a3 c1")
    assert one.of_key.ids is None
    one.push("b2 " + " ".join(f"a{n}" for n in range(4, 4 + MANY)))
    assert read_again(one).ids is not None
    one.push("a30 b3 a31")
    assert one.of_key.ids is not None
    assert sorted(map(len, one.of_key.ids.values())) == [1, MANY + 2]
    assert read_again(one).ids == one.of_key.ids
