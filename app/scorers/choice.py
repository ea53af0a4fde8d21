"""Multiple choice over free text: finds the option that an answer names.

Extractors run in order of strength, and the first that finds an option decides. If it finds two
different options with equal claims, the answer is unparsed; the scorer does not guess.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, field_validator
from typing_extensions import override

from app.errors import InvalidInputError
from app.items import Answer, ItemContent, Outcome, choice_letter
from app.scorers.base import Mark, NotScored, Scored, Scorer
from app.scorers.text import (
    is_denied,
    last_boxed,
    last_line,
    no_answer,
    plain,
    settled,
    stands,
    statements,
    without_emphasis,
)

ExtractorName = Literal["boxed", "statement", "line", "text", "preference", "mention"]

MAX_OPTIONS = 26


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several options with equal claims to be the answer."""

    letters: tuple[str, ...]


Claim = str | Ambiguous | None
"""The letter that an extractor found, a tie, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of one item in the form that extractors need.

    Case counts only where options differ in nothing else, as "TT" and "Tt" do.
    """

    letters: str
    texts: tuple[str, ...]

    @classmethod
    def of(cls, choices: tuple[str, ...]) -> "Options":
        """Make the options of an item; the first one is A."""
        letters = "".join(choice_letter(i) for i in range(len(choices)))
        return cls(letters=letters, texts=tuple(map(_normalise, choices)))

    def named_by(self, text: str) -> str | None:
        """Letter of the option whose whole text is `text`, if there is exactly one."""
        told = _normalise(text)
        for fold in (str, str.casefold):
            wanted = fold(told)
            found = [letter for letter, t in self._lettered if fold(t) == wanted]
            if wanted and len(found) == 1:
                return found[0]
        return None

    def mentioned_in(self, text: str) -> tuple[str, ...]:
        """Letters of the options whose text occurs in `text`, in order of their first mention.

        A mention inside a longer mention ("York" in "New York") does not count, nor does a negated
        one ("not Paris").
        """
        written = _normalise(text)
        haystack, texts = written.casefold(), sorted(map(str.casefold, self.texts), key=len)
        named = "|".join(re.escape(text) for text in reversed(texts) if text)
        if not named:
            return ()
        whole = re.compile(rf"(?<![\w.,+\-/])(?<!\d )(?:{named})(?![\w%]|[.,/:]\d)")
        found = [
            letter
            for match in whole.finditer(haystack)
            if not is_denied(haystack, *match.span())
            for letter in self._meant(match[0], written[slice(*match.span())])
        ]
        return tuple(dict.fromkeys(found))

    def _meant(self, folded: str, written: str) -> list[str]:
        """Letters of the options of this text, in the written case where only case differs."""
        alike = [(letter, text) for letter, text in self._lettered if text.casefold() == folded]
        exact = [letter for letter, text in alike if text == written]
        return exact or [letter for letter, _ in alike]

    @property
    def _lettered(self) -> list[tuple[str, str]]:
        return list(zip(self.letters, self.texts, strict=True))


def _normalise(text: str) -> str:
    return " ".join(without_emphasis(plain(text)).split()).strip(" .,;:!?\"'()[]{}$")


_NEGATED_AFTER = re.compile(
    r"[)\]\"'.]*\s*(?:(?:is|are|was|would\s+be|seems|looks)\s+(?:also\s+|clearly\s+|obviously\s+)?"
    r"(?:not|wrong|incorrect|false|impossible|too|out)\b|isn't|can't|cannot|doesn't|does\s+not|"
    r"couldn't|could\s+not|wouldn't|fails|:\s*(?:wrong|incorrect|false|no)\b)",
    re.IGNORECASE,
)
#: Characters of Latin words only, so that the B in "答えはBです" stands alone.
_WORD = r"0-9A-Za-z_À-ɏ"
#: A letter that stands alone; not one in a word, "C++", "A's", "U.S.", "°C", "A4" or "x-A".
_ALONE = (
    rf"(?<![{_WORD}'°$&+\-/.\\])[(\[]?([{{letters}}])[)\]]?"
    rf"(?![{_WORD}'+#°&]|-[{_WORD}]|\.[{_WORD}]|/[{_WORD}])"
)
#: A letter marked as an option: it stands in brackets, or a bracket follows it.
_MARKED = r"(?<![\w'°&+\-/.\\])(?:[(\[]\s*([{letters}])\s*[)\]]|(?<!\S)([{letters}])\))(?![\w'])"
_LABEL = re.compile(r"^\s*[(\[]?([A-Za-z])(?:[)\]]|[.:](?=\s|$))[)\].:]*\s*(.*)$")
_FILLER = re.compile(
    r"^(?:\s*(?:clearly|probably|likely|most\s+likely|definitely|therefore|thus|hence|indeed|simply|"
    r"actually|obviously|either|therefore|still|the|option|choice|letter|answer|response|"
    r"die|la|le|el|opción|opción|buchstabe|lettre|letra|选项|選項)\b\s*[:,]?|\s*[:,]\s*)*\s*",
    re.IGNORECASE,
)
#: "A" or "I" before a word is an article or a pronoun, unless one of these follows.
_NOT_AN_ARTICLE = re.compile(
    r"^\s*(?:$|[.,;:!?)\]\"'$\-–—=]|(?:because|since|as|and|or|is|for|which|with|but|due|so|given|"
    r"from|in|by|not|rather|und|oder|weil|et|ou|y|o|e)\b)",
    re.IGNORECASE,
)
_SECOND_LETTER = (
    r"^[)\]\"'.]*\s*(?:,|/|&|\bor\b|\band\b|\boder\b|\bund\b|\bou\b|\bet\b)+\s*(?:\b(?:or|and)\b\s*)?"
    r"(?:(?:option|possibly|maybe|perhaps|probably)\s+)*[(\[]?([{letters}])[)\]]?(?=\s*(?:$|[.,;:!?)/&]|\b(?:or|and)\b))"
)
_VERDICT = (
    r"[)\]\"'.]*\s*(?:is|ist|est|es|would\s+be|must\s+be)\s+(?:clearly\s+|definitely\s+|indeed\s+|the\s+|"
    r"therefore\s+|thus\s+)*(?:correct|right|best|true|richtig|korrekt|my\s+(?:final\s+)?(?:answer|"
    r"choice)|answer\b)"
)
_CHOOSING = re.compile(
    r"\b(?:i(?:'ll|'d|\s+would|\s+will)?\s+(?:choose|pick|select|go\s+(?:with|for)|say|guess|opt\s+for)|"
    r"my\s+(?:final\s+)?(?:pick|guess|selection)\s+is|"
    r"it(?:'s|\s+is|\s+must\s+be|\s+has\s+to\s+be|\s+should\s+be|\s+would\s+be)|"
    r"that(?:'s|\s+is|\s+leaves(?:\s+us\s+with)?)|must\s+be|leaves(?:\s+us\s+with)?|option|choice|answer)(?=[\s:(])",
    re.IGNORECASE,
)


def _claimed(claim: str, options: Options) -> Claim:
    """The option that an explicit claim names: "B", "(B) Paris" or "Paris"."""
    by_text = options.named_by(claim)
    if by_text is not None and len(_normalise(claim)) > 1:
        return by_text
    body = _FILLER.sub("", claim).lstrip("\"'$«")
    match = re.match(_ALONE.format(letters=options.letters + options.letters.lower()), body)
    if match is not None:
        letter, rest = match[1], body[match.end() :]
        bracketed = match[0] != letter
        wordlike = letter in "AI" or letter.islower()
        if bracketed or not wordlike or _NOT_AN_ARTICLE.match(rest):
            return _letter_and_rest(letter.upper(), rest, options)
    sentence = re.split(r"(?<=[^\d\s])[.!?;](?:\s|$)", body)[0]
    return options.named_by(body) or _single(options.mentioned_in(sentence))


def _letter_and_rest(letter: str, rest: str, options: Options) -> Claim:
    """`letter`, or a tie if `rest` names another option by letter or by text."""
    second = re.match(_SECOND_LETTER.replace("{letters}", options.letters), rest)
    if second is not None and second[1] != letter:
        return Ambiguous((letter, second[1]))
    other = options.named_by(rest.lstrip(" )].:-–—=,"))
    if other is not None and other != letter:
        return Ambiguous((letter, other))
    return letter


def _single(letters: tuple[str, ...]) -> Claim:
    if len(letters) > 1:
        return Ambiguous(letters)
    return letters[0] if letters else None


def _boxed(text: str, options: Options) -> Claim:
    content = last_boxed(text)
    return None if content is None else _claimed(content.strip("$ "), options)


def _statement(text: str, options: Options) -> Claim:
    """The option of the last statement such as "the answer is B", "Answer: B", "B is correct"."""
    text = without_emphasis(text)
    for claim in reversed(statements(text)):
        found = _claimed(claim, options)
        if found is not None:
            return found
    alone = _ALONE.format(letters=options.letters)
    verdicts = [
        match[1]
        for match in re.finditer(alone + _VERDICT, text, re.IGNORECASE)
        if match[1].isupper() and not is_denied(text, *match.span())
    ]
    return verdicts[-1] if verdicts else None


def _line(text: str, options: Options) -> Claim:
    """The option that is the whole answer, its last or its first line: "B", "(B)", "B) Paris"."""
    text = without_emphasis(text).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    bare = re.compile(rf"[(\[\"'$]*([{options.letters}])[)\]\"'$.:!]*", re.IGNORECASE)
    alone = [
        match[1].upper()
        for line in lines
        if (match := bare.fullmatch(line))
        and (match[1].isupper() or match[0] != match[1] or len(lines) == 1)
    ]
    if alone:
        return _single(tuple(dict.fromkeys(alone)))
    labelled = {m[1].upper() for line in lines if (m := _LABEL.match(line))}
    for line in dict.fromkeys([text, last_line(text), *lines[:1]]):
        by_text = options.named_by(line)
        if by_text is not None:
            return by_text
        label = _LABEL.match(line)
        # An answer that lists several options does not claim any of them by this.
        if (
            label is not None
            and label[1] in options.letters
            and len(labelled) == 1
            and not re.search(rf"(?<!\w)(?!{label[1]})[{options.letters}](?:[):]|\.\s)", label[2])
            and not _NEGATED_AFTER.match(" " + label[2])
        ):
            return _letter_and_rest(label[1], label[2], options)
    reasoned = re.match(rf"([{options.letters}])\s*(?:,|-|–|—|because\b|since\b|as\b)", text)
    if reasoned is not None:
        return _letter_and_rest(reasoned[1], text[reasoned.end(1) :], options)
    listed = re.fullmatch(
        rf"[{options.letters}](?:\s*(?:,|/|&|and|or)\s*[{options.letters}])+\.?", text
    )
    if listed is not None:
        return _single(tuple(dict.fromkeys(re.findall(rf"\b[{options.letters}]\b", text))))
    return None


def _text(text: str, options: Options) -> Claim:
    """The only option whose text occurs in the answer."""
    found = options.mentioned_in(text)
    return found[0] if len(found) == 1 else None


#: "Hence B." With a verb after it, the letter is no answer ("thus C is the speed of light").
_CONCLUDING = (
    r"(?:\b(?:so|hence|thus|therefore)\b[,:]?|[→⇒✅✓✔]|=>)\s*[\"'$]?"
    + _ALONE
    + r"[\"'$]?\s*(?:[.!]|$)"
)


def _preference(text: str, options: Options) -> Claim:
    """The option of a phrase weaker than a statement: "I'd go with B", "option B", "hence B."."""
    text = without_emphasis(text)
    alone = re.compile(r"[\s:]*(?:option\s+|choice\s+)?" + _ALONE.format(letters=options.letters))
    found = []
    for choosing in _CHOOSING.finditer(text):
        match = alone.match(text, choosing.end())
        if match is None or _NEGATED_AFTER.match(text, match.end()):
            continue
        if is_denied(text, choosing.start(), match.end()):
            continue
        rest = text[match.end() : match.end() + 60]
        if match[1] in "AI" and match[0].endswith(match[1]) and not _NOT_AN_ARTICLE.match(rest):
            continue
        second = re.match(_SECOND_LETTER.replace("{letters}", options.letters), rest)
        found += [match[1], second[1]] if second is not None else [match[1]]
    concluding = re.compile(
        _CONCLUDING.format(letters=options.letters), re.IGNORECASE | re.MULTILINE
    )
    found += [match[1] for match in concluding.finditer(text) if match[1].isupper()]
    return _single(tuple(dict.fromkeys(found)))


def _mention(text: str, options: Options) -> Claim:
    """The only letter that is marked as an option ("(B)", "B)" or bold) anywhere in the answer."""
    text = re.sub(r"(?:\*\*|__|`|\*)\s*[(\[]?([A-Z])[)\].:]?\s*(?:\*\*|__|`|\*)", r"(\1)", text)
    found = []
    for match in re.finditer(_MARKED.format(letters=options.letters), text):
        negated = is_denied(text, *match.span()) or _NEGATED_AFTER.match(text, match.end())
        if not negated:
            found.append(match[1] or match[2])
    return _single(tuple(dict.fromkeys(found)))


_EXTRACTORS: dict[ExtractorName, Callable[[str, Options], Claim]] = {
    "boxed": _boxed,
    "statement": _statement,
    "line": _line,
    "preference": _preference,
    "mention": _mention,
    "text": _text,
}


class Choice(Scorer):
    r"""Multiple choice: the option named by letter or by its text.

    Attributes:
        extractors: Extractors to run, strongest first. `boxed`: `\boxed{B}`. `statement`: "the
            answer is B", "Answer: B", "B is correct"; the last one counts. `line`: the answer, its
            last or its first line is an option. `preference`: "I'd go with B", "option B".
            `mention`: the only letter marked as an option. `text`: one option's text occurs.
    """

    version: ClassVar[str] = "4"

    extractors: Annotated[tuple[ExtractorName, ...], Field(min_length=1, strict=False)] = tuple(
        _EXTRACTORS
    )

    @field_validator("extractors")
    @classmethod
    def _each_once(cls, value: tuple[ExtractorName, ...]) -> tuple[ExtractorName, ...]:
        if len(set(value)) < len(value):
            raise ValueError("each extractor may be named once")
        return value

    @override
    async def score(self, item: ItemContent, answer: Answer) -> Mark:
        """Score 1 for a right option and 0 for another; unparsed where no single one is named."""
        right = item.target_letters
        if not right or len(item.choices) > MAX_OPTIONS:
            return NotScored(
                outcome=Outcome.ERROR,
                reason=f"The item needs 1 to {MAX_OPTIONS} choices and a target among them.",
            )
        text = settled(plain(answer.text))
        options = Options.of(item.choices)
        for name in self.extractors:
            claim = _EXTRACTORS[name](text, options)
            if isinstance(claim, Ambiguous):
                return no_answer(
                    text, f"The answer names several options: {', '.join(claim.letters)}."
                )
            if claim is not None:
                text_of = item.choices[options.letters.index(claim)]
                if not (stands(claim, text) and stands(text_of, text)):
                    return no_answer(text, f"The answer retracts what it claimed: {claim}.")
                return Scored(score=float(claim in right), extracted=claim, extractor=name)
        return no_answer(text, "No option could be found in the answer.")

    @override
    def examples(self, item: ItemContent, rng: np.random.Generator) -> tuple[str, str]:
        """The letters of a right and of a wrong option."""
        right = item.target_letters
        letters = Options.of(item.choices).letters
        wrong = [letter for letter in letters if letter not in right]
        if not right or not wrong:
            raise InvalidInputError("A choice item needs at least one right and one wrong option.")
        return right[0], wrong[int(rng.integers(len(wrong)))]
