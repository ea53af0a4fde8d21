"""Collects the questions that were asked while recorded answers are read."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from app.errors import FileFormatError
from app.exchange.results.found import is_right
from app.exchange.results.lm_eval_items import BY_METRIC, lengths, likelihoods
from app.exchange.results.recorded import (
    AskedItem,
    Method,
    Seen,
    UnusableRowError,
    digest_of,
    drawn,
)
from app.items import ScorerSpec

#: Descriptions of the normalisations of likelihoods, for messages.
NORMALISATIONS = {
    "none": "whatever its length",
    "characters": "for its length in characters",
    "bytes": "for its length in bytes",
}
#: The way to find the right option if targets do not name it: by the recorded scores.
BY_MARKS = "marks"
#: Share of a task's rows whose target may name an option by accident, such as a sentence "1".
_BY_ACCIDENT = 0.05
#: Number of recorded right answers, and of wrong answers, that are kept to be scored again.
_KEPT_ANSWERS = 100


@dataclass(slots=True)
class ItemSeen:
    """One item in all wordings in which it was asked.

    Attributes:
        tokens: Sums of prompt and of answer tokens, over the rows that have them.
        n_counted: Number of these rows.
    """

    task: str
    words: dict[bytes, AskedItem] = field(default_factory=dict)
    numbers: set[str] = field(default_factory=set)
    counts: Counter[bytes] = field(default_factory=Counter)
    tokens: tuple[int, int] = (0, 0)
    n_counted: int = 0

    @property
    def usual(self) -> AskedItem:
        """The item in its most frequent wording."""
        digest, _ = self.counts.most_common(1)[0]
        return self.words[digest]

    @property
    def expected_tokens(self) -> dict[str, int] | None:
        """Mean tokens of the recorded answers (tau of WILD, eq. 10); None if none were counted."""
        if not self.n_counted:
            return None
        read, written = (round(total / self.n_counted) for total in self.tokens)
        return {"in": read, "out": written}


@dataclass(slots=True)
class Explained:
    """How many recorded scores the likeliest option explains.

    Attributes:
        rows: Number of rows with a score and likelihoods.
        named: Number of these rows whose target names an option.
        hits: Number of explained rows, by normalisation and by way of naming the right option.
    """

    rows: int = 0
    named: int = 0
    hits: Counter[tuple[str, str]] = field(default_factory=Counter)

    def share(self, normalise: str) -> float:
        """Share of the recorded scores that a normalisation explains."""
        return self.hits[normalise, self.right(normalise)] / self.rows if self.rows else 1.0

    def right(self, normalise: str) -> str:
        """The way of `RIGHT` that explains more scores, or `BY_MARKS` if targets name no option."""
        if self.named <= _BY_ACCIDENT * self.rows:
            return BY_MARKS
        return max(RIGHT, key=lambda way: self.hits[normalise, way])


def _by_place(asked: AskedItem, bare: Sequence[str]) -> set[int]:
    return {int(t) for t in asked.targets if t.isdecimal() and int(t) < len(bare)}


def _by_text(asked: AskedItem, bare: Sequence[str]) -> set[int]:
    return {place for place, text in enumerate(bare) if text in asked.targets}


#: Ways in which a target names the right option: by its place, or by its text.
RIGHT: Mapping[str, Callable[[AskedItem, Sequence[str]], set[int]]] = {
    "place": _by_place,
    "text": _by_text,
}


@dataclass(slots=True)
class Chosen:
    """How often each option of an item was the likeliest, in right and in wrong answers.

    WinoGrande's files need this: their target is the rest of the sentence, and the row does not
    say which option is right.
    """

    options: tuple[str, ...]
    right: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)

    @property
    def answer(self) -> str | None:
        """The right option, as far as recorded scores tell it.

        It is the usual choice of right answers, or the only option that no wrong answer chose.
        """
        if self.right:
            return self.right.most_common(1)[0][0]
        left = [option for option in self.options if option not in self.wrong]
        return left[0] if len(left) == 1 else None

    @property
    def explained(self) -> int:
        """Number of recorded scores that are explained if `answer` is right."""
        answer = self.answer
        return self.right[answer or ""] + self.wrong.total() - self.wrong[answer or ""]


class Questions:
    """The questions that were asked, by item.

    Args:
        prompts_of: Examinee whose prompts are taken; None takes each item's most frequent wording.

    Attributes:
        items: Key to item, of the items that can be asked.
        unusable: Key of each other item to the reason why it cannot be asked.
        taken: Task to metrics and filters, with the number of rows of each.
        shots: Task to the numbers of examples that its files name.
        scorers: Task to the scorer that its files name.
        agreement: Task to the agreement of recorded scores with likelihoods.
    """

    def __init__(self, *, prompts_of: str | None = None) -> None:
        self.prompts_of = prompts_of
        self.items: dict[str, ItemSeen] = {}
        self.unusable: dict[str, str] = {}
        self.taken: dict[str, dict[str, Counter[str]]] = {}
        self.shots: dict[str, set[int | None]] = {}
        self.scorers: dict[str, ScorerSpec] = {}
        self.templated = False
        self.agreement: dict[str, Explained] = {}
        self._chosen: dict[tuple[str, str], Chosen] = {}
        self._kept: dict[bool, list[tuple[str, str, float]]] = {True: [], False: []}
        self._n_seen: Counter[bool] = Counter()
        self._lot = np.random.default_rng(0)
        self.tools: set[str] = set()

    def saw(self, seen: Seen) -> None:
        """Add one row."""
        self.tools.add(seen.tool)
        taken = self.taken.setdefault(seen.task, {"metric": Counter(), "filter": Counter()})
        taken["metric"][seen.metric] += 1
        for other in seen.offered:
            taken["metric"][other] += 0
        if seen.filter is not None:
            taken["filter"][seen.filter] += 1
        self.shots.setdefault(seen.task, set()).add(seen.shots)
        self.templated |= seen.templated
        if seen.scorer is not None:
            self.scorers.setdefault(seen.task, seen.scorer)
        if seen.item in self.unusable:
            return
        try:
            asked = self._asked(seen)
        except UnusableRowError as error:
            self.items.pop(seen.item, None)
            self.unusable[seen.item] = str(error)
            return
        if (item := self.items.get(seen.item)) is not None:
            item.numbers.add(str(seen.number)[:100])
            if seen.used is not None:
                item.tokens = (item.tokens[0] + seen.used[0], item.tokens[1] + seen.used[1])
                item.n_counted += 1
        if seen.score is None:
            return
        if asked.options:
            self._compare(seen, asked)
        else:
            self._keep(seen, seen.score)

    def _asked(self, seen: Seen) -> AskedItem:
        """The item as it was sent, by the row."""
        digest = digest_of(seen.sent())
        item = self.items.get(seen.item)
        if item is not None and digest in item.words:
            item.counts[digest] += self._weight(seen)
            return item.words[digest]
        asked = seen.asked()
        item = self.items.setdefault(seen.item, ItemSeen(seen.task))
        item.words[digest] = asked
        item.counts[digest] += self._weight(seen)
        return asked

    def _weight(self, seen: Seen) -> int:
        # The weight exceeds the number of examinees, so that this examinee's wording wins.
        return 10**9 if seen.examinee == self.prompts_of else 1

    @property
    def answers(self) -> list[tuple[str, str, float]]:
        """Random recorded answers, right ones first: key of the item, text, score."""
        return [*self._kept[True], *self._kept[False]]

    def numbers(self) -> dict[str, str]:
        """Key of each item to a key that is made of its number in the data set.

        Raises:
            FileFormatError: The files number their documents differently.
        """
        names: dict[str, str] = {}
        for key, item in self.items.items():
            if len(item.numbers) != 1:
                raise FileFormatError(
                    f"Items of a withheld bank are named by their number in the data set, and the "
                    f"files number {key!r} differently: {', '.join(sorted(item.numbers)[:3])}."
                )
            names[key] = f"{item.task}/{next(iter(item.numbers))}"
        if len(set(names.values())) < len(names):
            raise FileFormatError(
                "Items of a withheld bank are named by their number in the data set, and the files "
                "give one number to different documents."
            )
        return names

    def _compare(self, seen: Seen, asked: AskedItem) -> None:
        likely = likelihoods(seen.responses, len(asked.options))
        if likely is None:
            return
        if asked.after:
            bare = [option.strip() for option in asked.options]
            compared = [asked.after.strip()] * len(bare)
        else:
            bare = compared = [option[len(asked.gap) :] for option in asked.options]
        rows = self.agreement.setdefault(seen.task, Explained())
        rows.rows += 1
        rows.named += any(right(asked, bare) for right in RIGHT.values())
        for normalise in NORMALISATIONS:
            divisors = lengths(compared, normalise)
            values = [value / by for value, by in zip(likely, divisors, strict=True)]
            chosen = values.index(max(values))
            for way, right in RIGHT.items():
                rows.hits[normalise, way] += float(chosen in right(asked, bare)) == seen.score
            by_marks = self._chosen.setdefault(
                (seen.item, normalise), Chosen(tuple(option.strip() for option in bare))
            )
            rows.hits[normalise, BY_MARKS] -= by_marks.explained
            marked = by_marks.right if seen.score == 1.0 else by_marks.wrong
            marked[bare[chosen].strip()] += 1
            rows.hits[normalise, BY_MARKS] += by_marks.explained

    def answer_by_scores(self, key: str, normalise: str) -> str | None:
        """The right option of an item, stripped, as far as recorded scores tell it."""
        chosen = self._chosen.get((key, normalise))
        return None if chosen is None else chosen.answer

    def _keep(self, seen: Seen, score: float) -> None:
        # Reservoir sampling: every n-th row of a file might always belong to the same few items.
        text = seen.written
        if text is None or not text.strip():
            return
        marked = is_right(score)
        kept = self._kept[marked]
        self._n_seen[marked] += 1
        full = len(kept) == _KEPT_ANSWERS
        place = int(self._lot.integers(self._n_seen[marked])) if full else len(kept)
        if place < _KEPT_ANSWERS:
            kept[place : place + 1] = [(seen.item, text, score)]


class Methods:
    """Collects how answers were obtained, from one row of each task of a file."""

    def __init__(self) -> None:
        self._by_file: dict[tuple[str, str], Method] = {}

    def saw(self, seen: Seen) -> None:
        """Add a row, unless a row of the same file and task was added."""
        known = (seen.source.name, seen.task)
        if known not in self._by_file:
            self._by_file[known] = _method_of(seen)

    @property
    def all(self) -> list[Method]:
        """How the answers of each file's tasks were obtained."""
        return list(self._by_file.values())


def _method_of(seen: Seen) -> Method:
    after = f" behind filter {seen.filter}" if seen.filter not in (None, "none") else ""
    source = f"{seen.tool} results of {seen.task}, {seen.metric}{after}"
    method: Method = {"source": source, **seen.method}
    try:
        asked = seen.asked()
    except UnusableRowError:
        return method
    method["mode"] = "loglikelihood" if asked.options else "generate"
    if asked.options and seen.metric in BY_METRIC:
        method["normalise"] = BY_METRIC[seen.metric]
    method |= drawn(asked.max_tokens, asked.temperature)
    if seen.shots is not None:
        method["shots"] = seen.shots
    return method
