"""Files of an entry, from a folder, beside the entry or downloaded; each is checked by its hash."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from app.adapters.downloads import Progress, RemoteFile, download
from app.adapters.guard import AddressGuard
from app.errors import DownloadError, InvalidInputError
from app.exchange.catalog.build import check
from app.exchange.catalog.entry import AgentsEntry, Entry, Files, Listed, Source, wanted_files
from app.items import JsonValue
from app.records.banks import BankSpec, BankVersion
from app.storage.unit_of_work import UnitOfWork

#: Part of a version's knowledge: the files from which it was installed.
INSTALLED = "installed"
#: Called with each phase and its figures. Phases: `fetching`; `joining`, or `calibrating` and
#: `testing`; `writing`.
Report = Callable[[Mapping[str, JsonValue]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A bank that is ready to be written.

    Attributes:
        facts: Part `INSTALLED` of the version's knowledge, and of the installation's result.
        publish: Makes bank and version within the caller's transaction.
    """

    spec: BankSpec
    facts: Mapping[str, Any]
    publish: Callable[[UnitOfWork], Awaitable[BankVersion]]


def spec_of(entry: Entry | AgentsEntry) -> BankSpec:
    """The bank of an entry, as far as entries of all kinds describe it."""
    return BankSpec(
        name=entry.name,
        description=entry.description,
        licence=entry.licence,
        source=entry.homepage,
        metadata={"catalogue": entry.name},
    )


#: Size limit of one file; the largest file of the bundled catalogue has 50 MB.
MAX_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundFile:
    """A file of an entry.

    Attributes:
        checked_by: `git_blob`, `sha256`, `hub` where only the hub stated its hash, `content`
            where the whole content was verified, or `nothing`.
        cached: Path in the cache, if the file was downloaded.
    """

    name: str
    content: bytes
    origin: str
    sha256: str
    checked_by: str
    cached: Path | None = None

    def forget(self) -> None:
        """Remove a downloaded file from the cache, so that no later installation uses it."""
        if self.cached is not None:
            _forget(self.cached)

    def to_dict(self) -> dict[str, str]:
        """The facts about the file that are stored with the version."""
        return {name: getattr(self, name) for name in ("name", "origin", "sha256", "checked_by")}


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of an entry by group, and why an optional file is missing."""

    found: Mapping[str, FoundFile]
    missing: Mapping[str, str]


async def fetched_files(listed: Listed, guard: AddressGuard, report: Report) -> FoundFiles:
    """The files of an entry; files that are not in the hub's cache are downloaded into it.

    Raises:
        DownloadError: A required download failed; without a network it lists the files to bring.
        InvalidInputError: The hash of a file differs.
    """
    found: dict[str, FoundFile] = {}
    missing: dict[str, str] = {}
    for group, files, needed in listed.entry.groups():
        beside = await asyncio.to_thread(
            _lying, listed.folder, [source for source in files.files if source.file is not None]
        )
        if beside is not None:
            found[group] = beside
            continue
        try:
            found[group] = await _fetched(files, guard, report)
        except DownloadError as error:
            if not needed:
                missing[group] = error.detail
            elif error.unreachable:
                raise DownloadError(
                    f"{error.detail} {to_bring(listed.entry)}", unreachable=True
                ) from None
            else:
                raise
    return FoundFiles(found, missing)


def to_bring(entry: Entry | AgentsEntry) -> str:
    """Sentence that lists the files to bring where there is no network."""
    needed = [wanted_files(files.files) for _, files, needed in entry.groups() if needed]
    return (
        f"Without a network, put {'; and '.join(needed)} into a folder and install with `sextant "
        f"banks install {entry.name} --from FOLDER`."
    )


async def _fetched(files: Files, guard: AddressGuard, report: Report) -> FoundFile:
    sources = [source for source in files.files if source.file is None]
    if not sources:
        names = ", ".join(source.names[-1] for source in files.files)
        raise DownloadError(f"Expected {names} beside the catalogue's entry, found none.")
    name = sources[0].names[-1]
    places = [
        RemoteFile(url=s.address)
        if s.dataset is None
        else RemoteFile(dataset=s.dataset, revision=s.revision, path=s.path)
        for s in sources
    ]

    def fetching(progress: Progress) -> None:
        done, total = progress.done, progress.total
        report({"phase": "fetching", "file": progress.name, "bytes": done, "of_bytes": total})

    got = await download(name, places, guard, fetching)
    source = sources[got.place]

    def checked() -> FoundFile:
        content = _content(got.path)
        try:
            completed = _as_the_hub_says(source, got.path)
            found = _checked(content, completed or source, source.names[-1])
            by = "hub" if completed else found.checked_by
            return replace(found, cached=got.path, checked_by=by)
        except InvalidInputError:
            _forget(got.path)
            raise

    return await asyncio.to_thread(checked)


def _forget(path: Path) -> None:
    os.unlink(path.resolve())  # noqa: PTH108  the file itself, not the link to it
    path.unlink(missing_ok=True)


def _as_the_hub_says(source: Source, path: Path) -> Source | None:
    """The source with the hash under which the hub's cache has the file; None if it has its own."""
    kept = path.resolve().name
    kind = {64: "sha256", 40: "git_blob"}.get(len(kept))
    if source.dataset is None or source.sha256 or source.git_blob:
        return None
    if kind is None or not set(kept) <= set("0123456789abcdef"):
        return None
    return source.model_copy(update={kind: kept})


def files_in_folder(entry: Entry | AgentsEntry, folder: Path) -> FoundFiles:
    """The files of an entry from a user's folder, under the names they have at their sources.

    Raises:
        InvalidInputError: No such folder, a required file is missing, or a hash differs.
    """
    if not folder.is_dir():
        raise InvalidInputError(f"There is no folder {str(folder)!r}. {to_bring(entry)}")
    found: dict[str, FoundFile] = {}
    missing: dict[str, str] = {}
    for group, files, needed in entry.groups():
        lying = _lying(folder, files.files)
        if lying is not None:
            found[group] = lying
        elif needed:
            raise InvalidInputError(
                f"There is no {wanted_files(files.files)} in {str(folder)!r}: put it there."
            )
        else:
            missing[group] = f"The folder has no {wanted_files(files.files)}."
    return FoundFiles(found, missing)


def _lying(folder: Path, sources: Sequence[Source]) -> FoundFile | None:
    for source in sources:
        for name in source.names:
            path = folder / name
            if path.is_file():
                return _checked(_content(path), source, path.name)
    return None


def _content(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InvalidInputError(
                f"{path.name}: expected at most {MAX_BYTES >> 20} MB, got more."
            )
        return path.read_bytes()
    except OSError as exc:
        raise InvalidInputError(f"{path}: cannot be read: {exc.strerror}.") from exc


def _checked(content: bytes, source: Source, name: str) -> FoundFile:
    found = check(content, source, name)
    return FoundFile(
        name=name, content=content, origin=source.origin, sha256=found.sha256, checked_by=found.by
    )
