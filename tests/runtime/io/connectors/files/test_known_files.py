"""Known files take few bytes each, and stay known until they are gone for a while."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from penstock.files import FolderWatch
from penstock.runtime.io.connectors.files.folder_lister import FolderLister
from penstock.runtime.io.connectors.files.known_files import KnownFiles, RollCall
from penstock.runtime.io.connectors.filesystem import FileInfo
from penstock.runtime.record.value_codec import ValueCodec


class ManyFiles:
    """A file system with many files, which it makes while it is walked."""

    def __init__(self, count: int) -> None:
        self.count = count

    def walk(self, pattern: str) -> Iterator[FileInfo]:
        return (FileInfo(f"/in/part-{number:09}.jsonl", 7, modified=number) for number in range(self.count))

    def info(self, path: str) -> FileInfo | None:
        raise NotImplementedError


def test_a_known_file_takes_twelve_bytes_of_the_state():
    count = 20_000
    known = KnownFiles.empty().with_files(list(ManyFiles(count).walk("/in")))
    assert len(known) == count
    assert len(ValueCodec().dumps(known.state())) < 12 * count + 200
    assert sum(array.nbytes for array in (known.names, known.stamps, known.missing_for)) == 20 * count


def test_a_restored_set_knows_the_same_files():
    files = list(ManyFiles(1000).walk("/in"))
    known = RollCall(KnownFiles.empty().with_files(files)).ended(5.0, 100.0)
    again = KnownFiles.restored(ValueCodec().loads(ValueCodec().dumps(known.state())))
    assert np.array_equal(again.missing_for, known.missing_for)
    call = RollCall(again)
    assert call.unknown([*files, new := FileInfo("/in/new", 1)]) == [new]
    assert not call.changed


def test_files_that_are_gone_are_forgotten_only_after_their_time():
    old, present = FileInfo("/in/old", 1), FileInfo("/in/present", 1)
    known = KnownFiles.empty().with_files([old, present])
    sizes = []
    for _ in range(4):
        call = RollCall(known)
        call.unknown([present])
        known = call.ended(10.0, 25.0)
        sizes.append(len(known))
    assert sizes == [2, 2, 1, 1]


def test_short_times_between_listings_add_up_to_a_long_time():
    """A 32-bit float at three days would not change by a hundredth of a second."""
    known = KnownFiles.empty().with_files([FileInfo("/in/old", 1)])
    three_days, sizes = 262_144.0, []
    for waited in (three_days, *[0.01] * 4):
        known = RollCall(known).ended(waited, forget_after=three_days + 0.025)
        sizes.append(len(known))
    assert sizes == [1, 1, 1, 0, 0]


def test_a_listing_returns_a_bounded_number_of_the_first_files_and_the_next_one_goes_on():
    disk = ManyFiles(1000)
    folder = FolderLister(["/in"], FolderWatch(10, rest=0), lambda path: disk, most=300)  # type: ignore[arg-type]
    known, found = KnownFiles.empty(), list[str]()
    for expected in (300, 300, 300, 100):
        listing = folder.look(known, {}, 0.0)
        assert len(listing.new) == expected
        known = listing.known
        found += [info.path for info in listing.new]
    assert not listing.has_more
    assert found == sorted(found)
    assert len(set(found)) == 1000
