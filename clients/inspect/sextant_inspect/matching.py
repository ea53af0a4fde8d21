"""Match the samples of a task with the items of a bank."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from inspect_ai.dataset import Sample

from sextant_client import AsyncSextant, ProblemError

#: Samples a request, with two keys and two hashes each: the server takes 10,000 of either.
_PART = 5_000


@dataclass(frozen=True, slots=True)
class Samples:
    """Samples of a task by id, and which ids are only numbers, as the data set has none."""

    by_id: Mapping[str, Sample]
    numbered: frozenset[str]

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Samples":
        """Samples of a data set. A sample without an id gets its number, as in Inspect.

        Raises:
            ValueError: Two samples have the same id.
        """
        by_id, numbered = {}, set()
        for number, sample in enumerate(samples, start=1):
            if sample.id is None:
                sample.id = number
                numbered.add(str(number))
            if str(sample.id) in by_id:
                raise ValueError(f"Expected samples with different ids, got {sample.id!r} twice.")
            by_id[str(sample.id)] = sample
        return cls(by_id, frozenset(numbered))

    async def by_item(self, client: AsyncSextant, bank: str, task: str) -> dict[str, str]:
        """Id of the sample that matches each item of a bank, by the item's key.

        A sample matches the item with the same content. Its name, which is `id`, or `task/id` in
        banks made from Inspect's logs, decides only if the bank shows no content: otherwise the
        same id may be of another question. A number is not a name, because some tools count from 1
        and others from 0.
        """
        whole = await client.request("GET", f"/v1/banks/{quote(bank, safe='')}")
        is_shown = whole["visibility"] == "open" and whole["latest_version"]["has_content"]
        found: dict[str, str] = {}
        names = {
            sample: [f"{task}/{sample}"] + [sample] * (sample not in self.numbered)
            for sample in self.by_id
        }
        hashes = {sample: list(_hashes(content)) for sample, content in self.by_id.items()}
        samples = list(self.by_id)
        for begin in range(0, len(samples), _PART):
            part = samples[begin : begin + _PART]
            matched = await _matched(
                client,
                bank,
                [name for sample in part for name in names[sample]],
                [content for sample in part for content in hashes[sample]],
            )
            for sample in part:
                alike = [item for content in hashes[sample] for item in matched.get(content, ())]
                named = [item for name in names[sample] for item in matched.get(name, ())]
                # Of several items with this content the one of this name.
                wanted = sorted(alike, key=lambda item: item not in named)
                wanted += [] if is_shown else named
                item = next((item for item in wanted if item not in found), None)
                if item is not None:
                    found[item] = sample
        return found


async def _matched(
    client: AsyncSextant, bank: str, keys: Sequence[str], hashes: Sequence[str]
) -> Mapping[str, Sequence[str]]:
    try:
        return (await client.match_items(bank, keys=keys, content_hashes=hashes)).matched
    except ProblemError as problem:
        if problem.code != "missing_scope":
            raise
        # What a withheld bank asks is not for this API key.
        return (await client.match_items(bank, keys=keys)).matched


def _hashes(sample: Sample) -> Iterator[str]:
    """Content hashes of an item with the sample's question as a prompt, and as a conversation."""
    choices = sample.choices or []
    target = [sample.target] if isinstance(sample.target, str) else list(sample.target)
    if choices:
        letters = {chr(ord("A") + place): choice for place, choice in enumerate(choices)}
        target = [letters.get(text, text) for text in target]
    if isinstance(sample.input, str):
        yield _hash(sample.input, [], choices, target)
        yield _hash(None, [["user", sample.input]], choices, target)
    else:
        turns = [[message.role, message.text] for message in sample.input]
        yield _hash(None, turns, choices, target)


def _hash(*content: object) -> str:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()
