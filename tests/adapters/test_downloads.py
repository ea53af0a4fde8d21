"""Downloads from a server that speaks the hub's protocol and from plain URLs, with faults."""

import asyncio
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.adapters.downloads import Downloaded, Progress, RemoteFile, download
from app.adapters.guard import AddressGuard
from app.errors import DownloadError
from tests.servers.hub import COMMIT, DATASET, Hub, served_as_the_hub

CONTENT = b"".join(b"row %d of the split\n" % n for n in range(5000))
LOCAL = AddressGuard(allow_private=True)


@pytest.fixture
def hub() -> Hub:
    return Hub(files={"main/test.parquet": CONTENT, "test.jsonl": CONTENT})


@pytest.fixture(autouse=True)
def url(hub: Hub, tmp_path: Path) -> Iterator[str]:
    with served_as_the_hub(hub, tmp_path / "hf") as url:
        yield url


def of_dataset(path: str = "main/test.parquet", revision: str = COMMIT) -> RemoteFile:
    return RemoteFile(dataset=DATASET, revision=revision, path=path)


async def fetched(*places: RemoteFile, guard: AddressGuard = LOCAL) -> Downloaded:
    return await download("the file", places, guard)


async def refused(*places: RemoteFile, guard: AddressGuard = LOCAL) -> DownloadError:
    with pytest.raises(DownloadError) as refusal:
        await fetched(*places, guard=guard)
    assert "\n" not in refusal.value.detail
    return refusal.value


async def test_a_dataset_is_redirected_and_then_cached(hub: Hub, tmp_path: Path) -> None:
    first = await fetched(of_dataset())
    assert first.path.read_bytes() == CONTENT
    assert tmp_path / "hf" in first.path.parents
    asked = dict(hub.asked)
    assert (await fetched(of_dataset())).path == first.path
    assert dict(hub.asked) == asked  # a commit never changes


async def test_a_plain_file_follows_redirects_and_tells_progress(hub: Hub, url: str) -> None:
    told: list[Progress] = []
    got = await download(
        "test.jsonl", [RemoteFile(url=f"{url}/moved/test.jsonl")], LOCAL, told.append
    )
    assert got.path.name == "test.jsonl"
    assert got.path.read_bytes() == CONTENT
    assert told[-1] == Progress(name="test.jsonl", done=len(CONTENT), total=len(CONTENT))


async def test_an_interrupted_download_resumes_where_it_ended(hub: Hub, url: str) -> None:
    hub.cuts["test.jsonl"] = 2
    got = await fetched(RemoteFile(url=f"{url}/plain/test.jsonl"))
    assert got.path.read_bytes() == CONTENT
    half = len(CONTENT) // 2
    assert hub.ranges[0] == ("test.jsonl", f"bytes={half}-")


async def test_an_interrupted_file_of_the_hub_is_completed(hub: Hub) -> None:
    hub.cuts["main/test.parquet"] = 1
    assert (await fetched(of_dataset())).path.read_bytes() == CONTENT


async def test_a_killed_download_resumes_from_its_partial_file(hub: Hub, url: str) -> None:
    place = RemoteFile(url=f"{url}/plain/test.jsonl")
    hub.held.add("test.jsonl")
    half_way = asyncio.Event()
    loop = asyncio.get_running_loop()

    def tell(progress: Progress) -> None:
        if progress.done >= len(CONTENT) // 2:
            loop.call_soon_threadsafe(half_way.set)

    running = asyncio.create_task(download("test.jsonl", [place], LOCAL, tell))
    await asyncio.wait_for(half_way.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    hub.held.clear()
    assert (await fetched(place)).path.read_bytes() == CONTENT
    assert hub.ranges[0][1] == f"bytes={len(CONTENT) // 2}-"


async def test_a_dataset_behind_a_token_says_so_and_opens_with_it(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_right"
    assert "set HF_TOKEN" in (await refused(of_dataset())).detail
    monkeypatch.setenv("HF_TOKEN", "hf_right")
    assert (await fetched(of_dataset())).path.read_bytes() == CONTENT


async def test_the_first_source_that_has_the_file_is_used(hub: Hub, url: str) -> None:
    got = await fetched(RemoteFile(url=f"{url}/plain/gone.jsonl"), of_dataset())
    assert got.place == 1
    assert got.path.read_bytes() == CONTENT


async def test_a_missing_file_or_revision_is_named(url: str) -> None:
    gone = await refused(RemoteFile(url=f"{url}/plain/gone.jsonl"))
    assert "has no the file any more" in gone.detail or "404" in gone.detail
    assert "has no main/other.parquet" in (await refused(of_dataset("main/other.parquet"))).detail
    other = await refused(of_dataset(revision="f" * 40))
    assert "has no revision ffff" in other.detail


async def test_a_missing_network_has_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    offline = await refused(of_dataset(), RemoteFile(url="https://data.example/test.jsonl"))
    assert offline.unreachable
    assert "HF_HUB_OFFLINE" in offline.detail


async def test_downloads_go_through_the_outbound_guard(hub: Hub, url: str) -> None:
    closed = AddressGuard(allow_private=False)
    for place in (of_dataset(), RemoteFile(url=f"{url}/plain/test.jsonl")):
        refusal = await refused(place, guard=closed)
        assert "SEXTANT_ALLOWED_NETWORKS" in refusal.detail
    assert not hub.asked


@pytest.mark.parametrize("path", ["loop", "away"])
async def test_broken_redirects_are_reported(url: str, path: str) -> None:
    refusal = await refused(RemoteFile(url=f"{url}/{path}"))
    assert (
        "redirects the download of the file to an address that cannot be called" in refusal.detail
    )
    assert not refusal.unreachable


async def test_a_full_disk_is_one_sentence_and_leaves_nothing(
    hub: Hub, url: str, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(CONTENT) // 3, before[1]))
    try:
        for place in (of_dataset(), RemoteFile(url=f"{url}/plain/test.jsonl")):
            full = await refused(place)
            assert "no space left" in full.detail
            assert "HF_HOME" in full.detail
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (await fetched(of_dataset())).path.read_bytes() == CONTENT
