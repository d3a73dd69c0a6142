"""`Damage`: which files of the storage were damaged or lost, and which errors that explains."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.testing.simulation.world.faults import FaultKind

#: Damage of the decision log.
_OF_THE_LOG = (FaultKind.FLIPPED_SLOT, FaultKind.FLIPPED_HINT, FaultKind.SLOT_GONE, FaultKind.HINT_GONE)


class Damage:
    """What has happened to files; see the module's text.

    Example:
        >>> damage = Damage()
        >>> damage.strike("j/chk-7-1/metadata", FaultKind.METADATA_GONE)
        >>> damage.explains("memory:/j/chk-7-1/metadata is not there"), damage.explains("j/chk-6-1/metadata")
        (True, False)
        >>> damage.moved("j/chk-7-1", "kept")
        >>> damage.explains("memory:/kept/metadata is not there")
        True
    """

    def __init__(self) -> None:
        self._struck: dict[str, FaultKind] = {}

    def strike(self, path: str, kind: FaultKind) -> None:
        """A file was damaged or lost."""
        self._struck[path] = kind

    def moved(self, folder: str, to: str) -> None:
        """A folder has another name now, with what is damaged in it."""
        inside = {path: kind for path, kind in self._struck.items() if path.startswith(f"{folder}/")}
        self._struck.update({to + path.removeprefix(folder): kind for path, kind in inside.items()})

    @property
    def has_struck(self) -> bool:
        """Whether anything was damaged."""
        return bool(self._struck)

    @property
    def has_struck_log(self) -> bool:
        """Whether anything of a decision log was damaged."""
        return any(kind in _OF_THE_LOG for kind in self._struck.values())

    @property
    def has_lost_slot(self) -> bool:
        """Whether a record of a decision log is gone, which no setting allows."""
        return FaultKind.SLOT_GONE in self._struck.values()

    def explains(self, text: object) -> bool:
        """Whether a text names a file that was struck."""
        said = str(text)
        return any(path in said for path in self._struck)

    def spares(self, paths: Iterable[str]) -> bool:
        """Whether none of these files was struck."""
        return not any(path in self._struck for path in paths)
