"""Interfaces that sources and sinks implement, with their contexts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock._public_names import public_names

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.filesystem import FileInfo as FileInfo
    from penstock.runtime.io.connectors.filesystem import FileSystem as FileSystem
    from penstock.runtime.operators.committed_sink import HasCommitter as HasCommitter
    from penstock.runtime.operators.committed_sink import StagingWriter as StagingWriter
    from penstock.runtime.operators.coordinators import (
        ExternallyInducedReader as ExternallyInducedReader,
    )
    from penstock.runtime.operators.hybrid_source import EndOfHistory as EndOfHistory
    from penstock.runtime.operators.lag import SourceLag as SourceLag
    from penstock.runtime.operators.lag import SplitLag as SplitLag
    from penstock.runtime.operators.lag import VersionLag as VersionLag
    from penstock.runtime.operators.last_commit import LastCommit as LastCommit
    from penstock.runtime.operators.sinks import ChecksJobConfig as ChecksJobConfig
    from penstock.runtime.operators.sinks import RemovesLeftovers as RemovesLeftovers
    from penstock.runtime.operators.sinks import ReportsCommit as ReportsCommit
    from penstock.runtime.operators.sinks import Sink as Sink
    from penstock.runtime.operators.sinks import SinkContext as SinkContext
    from penstock.runtime.operators.sinks import SinkWriter as SinkWriter
    from penstock.runtime.operators.source import AddsSplits as AddsSplits
    from penstock.runtime.operators.source import ConnectorContext as ConnectorContext
    from penstock.runtime.operators.source import DeadLetter as DeadLetter
    from penstock.runtime.operators.source import DescribesPart as DescribesPart
    from penstock.runtime.operators.source import FollowsCheckpoints as FollowsCheckpoints
    from penstock.runtime.operators.source import NeededColumns as NeededColumns
    from penstock.runtime.operators.source import PausesSplits as PausesSplits
    from penstock.runtime.operators.source import Polled as Polled
    from penstock.runtime.operators.source import ReadsInPart as ReadsInPart
    from penstock.runtime.operators.source import ReportsLag as ReportsLag
    from penstock.runtime.operators.source import ReportsSplits as ReportsSplits
    from penstock.runtime.operators.source import Source as Source
    from penstock.runtime.operators.source import SourceReader as SourceReader
    from penstock.runtime.operators.source import SplitEnumerator as SplitEnumerator
    from penstock.runtime.operators.source import SplitEnumeratorContext as SplitEnumeratorContext
    from penstock.runtime.operators.source import SplitProgress as SplitProgress
    from penstock.runtime.operators.source_coordinator import OnRequest as OnRequest
    from penstock.runtime.snapshot.completed_checkpoint import CommitPermit as CommitPermit
    from penstock.runtime.trust.paths import UntrustedPathError as UntrustedPathError
    from penstock.runtime.trust.paths import check_declared as check_declared
    from penstock.runtime.trust.paths import check_directory as check_directory
    from penstock.runtime.trust.paths import check_file_name as check_file_name
else:
    __getattr__, __dir__, __all__ = public_names(__name__, __file__)
