from __future__ import annotations

from penstock.runtime.state.keyed_snapshot import CompactionPolicy, first_to_merge


def rewritten_per_byte(
    base: int, change: int, checkpoints: int, policy: CompactionPolicy
) -> tuple[float, int]:
    """Bytes written per byte of change, and the longest chain, when no key changes twice."""
    chain = [base]
    written = longest = 0
    for _ in range(checkpoints):
        sizes = [*chain, change]
        first = first_to_merge(sizes, policy)
        chain = sizes if first is None else [*sizes[:first], sum(sizes[first:])]
        written += chain[-1]
        longest = max(longest, len(chain))
    return written / (change * checkpoints), longest


def test_small_changes_do_not_rewrite_a_large_base_each_time() -> None:
    amplification, longest = rewritten_per_byte(1_000_000, 100, 2_000, CompactionPolicy())
    assert amplification < 10
    assert longest <= 8


def test_changes_that_outgrow_the_base_replace_it() -> None:
    assert first_to_merge([100, 60, 41], CompactionPolicy(growth=1.0)) == 0
    assert first_to_merge([100, 60, 40], CompactionPolicy(growth=1.0)) is None
    assert first_to_merge([100, 60, 41], CompactionPolicy(growth=2.0)) is None


def test_a_falling_chain_merges_only_its_two_smallest_when_it_is_too_long() -> None:
    assert first_to_merge([1000, 300, 100, 30], CompactionPolicy(max_files=3)) == 2


def test_a_single_piece_is_never_merged() -> None:
    assert first_to_merge([], CompactionPolicy(max_files=0)) is None
    assert first_to_merge([5], CompactionPolicy(max_files=0)) is None
