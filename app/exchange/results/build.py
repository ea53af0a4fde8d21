"""Make the items of a bank, its prompt and candidate scorers from the questions that were asked."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from app.errors import FileFormatError, InvalidInputError
from app.exchange.item_record import ItemFields, parse_item
from app.exchange.results.found import Choice, Found, Style
from app.exchange.results.lm_eval_items import BY_METRIC
from app.exchange.results.questions import BY_MARKS, NORMALISATIONS, RIGHT, Questions
from app.exchange.results.recorded import AskedItem, Method, common_space, drawn
from app.items import ScorerSpec
from app.printable import percent

T = TypeVar("T")
#: Least share of the recorded scores that the likeliest option must explain.
_LEAST_AGREEMENT = 0.95
#: Candidate marks for the blank of a question; the first that occurs in no text is used.
_BLANKS = ("_", "____", "[blank]", "<<blank>>")
_MAX_STOPS, _MAX_STOP_CHARS = 16, 200
_NUMBER = re.compile(r"\s*[$€£]?\s*[-+]?(?:\d[\d,]*\.?\d*|\.\d+)\s*%?\s*")
_FINAL_MARK = "####"


def items_of(seen: Questions, others: Sequence[str], *, target_after: str | None = None) -> Found:
    """Make items of the rows that were seen; rows of the filters `others` were not taken.

    The right answer is the text behind the mark `target_after` in the recorded target.

    Raises:
        FileFormatError: No row can become an item, tasks were asked in different ways, or the
            recorded scores cannot be explained.
    """
    return _Builder(seen, target_after).build(others)


class _Builder:
    def __init__(self, seen: Questions, target_after: str | None) -> None:
        self._seen = seen
        self._asked = [item.usual for item in seen.items.values()]
        self._target_after = target_after

    def build(self, others: Sequence[str]) -> Found:
        if not self._seen.items:
            raise FileFormatError(_nothing(self._left_out()))
        way = self._way()
        choices = [*self._chosen(others), *self._ambiguous(), *self._cautions()]
        known_shots = _only(count for task in self._seen.shots.values() for count in task)
        if way.options:
            style, options_of = self._likely_style(choices)
        else:
            style, options_of = self._written_style(way), None
        if known_shots:
            style["item_shots"] = known_shots
        cut = self._cut(choices) if options_of is None else None
        items = self._made(style, options_of, cut)
        tasks = sorted({item.task for item in self._seen.items.values()})
        asked: Method = {"mode": style["mode"], "source": self._source(tasks)}
        if options_of is not None:
            asked["normalise"] = style["normalise"]
        if known_shots is not None:
            asked["shots"] = known_shots
        asked |= self._drawn()
        left_out = self._left_out()
        if not items:
            raise FileFormatError(_nothing(left_out))
        targets = [text for item in items for text in _texts(item.get("target"))]
        kept = {item["key"] for item in items}
        return Found(
            items=items,
            style=style,
            asked=asked,
            scorers=[] if options_of is not None else self._candidates(targets),
            answers=[answer for answer in self._seen.answers if answer[0] in kept],
            choices=choices,
            left_out=left_out,
        )

    def _left_out(self) -> dict[str, list[str]]:
        """Reason to the keys of items that cannot be asked."""
        found: dict[str, list[str]] = {}
        for key, reason in self._seen.unusable.items():
            found.setdefault(reason, []).append(key)
        return found

    def _way(self) -> AskedItem:
        """An example item, after a check that all items were asked in the same way."""
        ways: dict[tuple[object, ...], tuple[str, AskedItem]] = {}
        for item in self._seen.items.values():
            asked = item.usual
            form = (bool(asked.options), bool(asked.after), asked.stop)
            ways.setdefault(form, (item.task, asked))
        if len(ways) > 1:
            told = "; ".join(f"{task}: {_form(asked)}" for task, asked in ways.values())
            tasks = sorted({item.task for item in self._seen.items.values()})
            advice = (
                f"choose tasks that were asked alike with --task, of {', '.join(tasks)[:300]}"
                if len(tasks) > 1
                else "leave out the files that ask otherwise, or take the words of one model with "
                "--prompts-of"
            )
            raise FileFormatError(
                f"The questions were asked in {len(ways)} ways ({told}), and a bank asks in one: "
                f"{advice}."
            )
        return next(iter(ways.values()))[1]

    def _chosen(self, others: Sequence[str]) -> list[Choice]:
        """The filters and metrics that were taken out of several."""
        made = []
        for task, taken in sorted(self._seen.taken.items()):
            for what, option in (("filter", "--filter"), ("metric", "--metric")):
                counts = taken[what]
                names = [name for name, n in counts.items() if n]
                rest = [name for name, n in counts.items() if not n]
                if what == "filter":
                    rest = [name for name in others if name not in names]
                if what == "metric" and "inspect" in self._seen.tools:
                    what, option = "scorer", "--scorer"
                if rest:
                    made.append(
                        Choice(
                            what=what,
                            taken=", ".join(names),
                            others=tuple(rest),
                            option=option,
                            detail=f"{task}: {what} {', '.join(names)} counts; there is also "
                            f"{', '.join(rest)}.",
                        )
                    )
        return made

    def _ambiguous(self) -> list[Choice]:
        several = [key for key, item in self._seen.items.items() if len(item.words) > 1]
        if not several:
            return []
        taken = self._seen.prompts_of or "the words that most models were asked in"
        return [
            Choice(
                what="prompt",
                taken=taken,
                option="--prompts-of",
                detail=f"{len(several)} questions were not put to all models in the same words, "
                f"the first {several[0]!r}; the bank takes "
                f"{taken if self._seen.prompts_of is None else f'the words of {taken}'}.",
            )
        ]

    def _cautions(self) -> list[Choice]:
        told = []
        texts = any(item.prompt is not None for item in self._asked)
        if texts and self._seen.templated:
            told.append(
                Choice(
                    what="chat_template",
                    taken="as sent",
                    detail="The prompts were written by a model's own chat template: ask by "
                    "completions (--kind openai_completions), or the template's marks are "
                    "sent as text.",
                )
            )
        elif texts:
            told.append(
                Choice(
                    what="prompt_form",
                    taken="text",
                    option="--kind",
                    detail="The prompts are texts, as completions take them (--kind "
                    "openai_completions); to a chat endpoint each goes as one turn.",
                )
            )
        if most := max(item.max_tokens or 0 for item in self._asked):
            told.append(
                Choice(
                    what="max_tokens",
                    taken=str(most),
                    option="--max-tokens",
                    detail=f"Answers had at most {most} tokens: `sextant run --max-tokens {most}` "
                    "sets the same limit.",
                )
            )
        return told

    def _drawn(self) -> Method:
        """Token limit and temperature of the answers, if they are the same for all items."""
        return drawn(
            _only(item.max_tokens for item in self._asked),
            _only(item.temperature for item in self._asked),
        )

    def _likely_style(self, choices: list[Choice]) -> tuple[Style, dict[str, str]]:
        """Prompt of a bank whose options are compared, and for each task how targets name them."""
        normalise = self._normalise(choices)
        right = {task: rows.right(normalise) for task, rows in self._seen.agreement.items()}
        if unnamed := [task for task, way in right.items() if way == BY_MARKS]:
            choices.append(
                Choice(
                    what="target",
                    taken=BY_MARKS,
                    detail="The files do not name the right options of "
                    f"{', '.join(unnamed)[:200]}: the likeliest option of an answer that "
                    "was scored as right is taken as right.",
                )
            )
        items = self._asked
        blank = any(item.after for item in items)
        shared = _only(item.gap for item in items)
        if shared is None and not blank:
            shared = common_space([option for item in items for option in item.options])
        style: Style = {
            "mode": "loglikelihood",
            "normalise": normalise,
            "layout": {"question": "", "answer": "", "gap": shared or "", "separator": ""},
        }
        if blank:
            texts = [f"{item.prompt}{item.after}{''.join(item.options)}" for item in items]
            free = next((b for b in _BLANKS if not any(b in text for text in texts)), None)
            if free is None:
                raise FileFormatError(
                    "Expected a mark for a blank that no question contains, but each of "
                    f"{' '.join(_BLANKS)} stands in some question."
                )
            style["blank"] = free
        return style, right

    def _normalise(self, choices: list[Choice]) -> str:
        by_metric = self._taken("metric")
        wanted = _only(map(BY_METRIC.get, by_metric))
        rows = sum(each.rows for each in self._seen.agreement.values())
        if not rows:
            return wanted or "none"
        unnamed = any(each.right("none") == BY_MARKS for each in self._seen.agreement.values())
        if unnamed and wanted is None:
            raise FileFormatError(
                f"The files do not name the right options, and {' and '.join(sorted(by_metric))} "
                f"does not tell them: choose a metric with --metric ({', '.join(BY_METRIC)})."
            )
        shares = {
            way: sum(each.share(way) * each.rows for each in self._seen.agreement.values()) / rows
            for way in NORMALISATIONS
        }
        best = max(NORMALISATIONS, key=lambda way: (shares[way], way == wanted))
        told = wanted if wanted and shares[wanted] >= _LEAST_AGREEMENT else best
        if shares[told] < _LEAST_AGREEMENT:
            raise FileFormatError(
                f"By {' and '.join(sorted(by_metric))} the likeliest option explains "
                f"{percent(shares[told])} of the recorded scores only, so they mean something "
                "else: choose another metric with --metric (acc, acc_norm)."
            )
        if told != wanted:
            choices.append(
                Choice(
                    what="normalise",
                    taken=told,
                    option="--metric",
                    detail=f"The recorded scores are those of the likeliest option, "
                    f"{NORMALISATIONS[told]} ({percent(shares[told], 1)} of them).",
                )
            )
        return told

    def _written_style(self, way: AskedItem) -> Style:
        stops = [mark for mark in way.stop if len(mark) <= _MAX_STOP_CHARS][:_MAX_STOPS]
        return {
            "mode": "generate",
            "free_instruction": "",
            "choice_instruction": "",
            "stop": stops,
            "layout": {"question": "", "answer": "", "gap": "", "separator": ""},
        }

    def _cut(self, choices: list[Choice]) -> str | None:
        """The mark behind which the recorded targets hold the answer."""
        if self._target_after is not None:
            return self._target_after
        targets = [text for item in self._asked for text in item.targets]
        if not targets or not all(_FINAL_MARK in text for text in targets):
            return None
        choices.append(
            Choice(
                what="target",
                taken=_FINAL_MARK,
                option="--target-after",
                detail=f"Every recorded target has {_FINAL_MARK}: the text after it is the target.",
            )
        )
        return _FINAL_MARK

    def _made(
        self, style: Style, right: Mapping[str, str] | None, cut: str | None
    ) -> list[ItemFields]:
        items = []
        for key, item in list(self._seen.items.items()):
            fields: ItemFields = {"key": key, "tags": [item.task]}
            fields |= _content(item.usual, style, cut)
            if item.expected_tokens is not None:
                fields["expected_tokens"] = item.expected_tokens
            if right is not None:
                way = right.get(item.task, "place")
                marked = None
                if way == BY_MARKS:
                    marked = self._seen.answer_by_scores(key, style["normalise"])
                fields |= _options(item.usual, style, way, marked)
            try:
                record = parse_item(fields)
            except InvalidInputError as error:
                self._seen.unusable[key] = (
                    error.problems[0].detail if error.problems else error.detail
                )
                continue
            if not record.content.target:
                self._seen.unusable[key] = "it has no right answer"
                continue
            items.append(fields)
        return items

    def _candidates(self, targets: Sequence[str]) -> list[ScorerSpec]:
        """Scorers that may score as the files did; a scorer that the files name comes first."""
        named = list(dict.fromkeys(map(repr, self._seen.scorers.values())))
        found = list(self._seen.scorers.values())[:1] if len(named) == 1 else []
        if targets and all(_NUMBER.fullmatch(text) for text in targets):
            found.append(ScorerSpec("numeric"))
        return [*found, ScorerSpec("exact"), ScorerSpec("includes")]

    def _taken(self, what: str) -> set[str]:
        """Filters or metrics from which rows were taken."""
        return {name for taken in self._seen.taken.values() for name, n in taken[what].items() if n}

    def _source(self, tasks: Sequence[str]) -> str:
        shown = ", ".join(tasks[:3]) + (", ..." if len(tasks) > 3 else "")
        filters = self._taken("filter") - {"none"}
        by = ", ".join(sorted(self._taken("metric")))
        after = f" behind filter {', '.join(sorted(filters))}" if filters else ""
        return f"{' and '.join(sorted(self._seen.tools))} results of {shown}, {by}{after}"[:500]


def _content(asked: AskedItem, style: Style, cut: str | None) -> ItemFields:
    targets = list(asked.targets)
    if cut is not None:
        targets = [text.rpartition(cut)[2].strip() for text in targets if cut in text]
    if asked.messages:
        turns = [{"role": turn.role, "content": turn.content} for turn in asked.messages]
        return {"messages": turns, "target": targets or None}
    prompt = asked.prompt or ""
    if asked.after:
        prompt += style["blank"] + asked.after
    return {"prompt": prompt, "target": targets or None}


def _options(asked: AskedItem, style: Style, way: str, marked: str | None) -> ItemFields:
    gap = len(style["layout"]["gap"])
    options = [option[gap:] for option in asked.options]
    if way == BY_MARKS:
        return {"choices": options, "target": [o for o in options if o.strip() == marked]}
    bare = [option.strip() for option in options] if asked.after else options
    return {"choices": options, "target": [options[i] for i in sorted(RIGHT[way](asked, bare))]}


def _form(asked: AskedItem) -> str:
    if asked.options:
        return "options compared in a blank" if asked.after else "options compared"
    stops = ", ".join(f"{mark!r:.40}" for mark in asked.stop[:4])
    return f"answers written, ended by {stops or 'the model'}"


def _nothing(left_out: Mapping[str, Sequence[str]]) -> str:
    reasons = "; ".join(
        f"{len(keys)} because {reason}, the first {keys[0]!r}" for reason, keys in left_out.items()
    )
    return f"None of the questions can be asked again: {reasons[:1000]}."


def _only(values: Iterable[T]) -> T | None:
    """The value that all of them have; None if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _texts(value: object) -> list[str]:
    return [str(part) for part in value] if isinstance(value, list) else []
