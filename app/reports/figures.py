"""Sentences about a session's figures, shared by the page, the terminal and files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from math import floor, log10
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from app.items import Outcome
from app.printable import percent
from app.records.fields import Interval, ends
from app.records.figures import RecentRankFigures
from app.reports.formats import count

#: What happens to unparseable answers, by policy.
UNPARSED_WORDS = {"wrong": "count as wrong", "missing": "are left out"}
_PAST = {"wrong": "counted as wrong", "missing": "were left out"}
#: Ends and the SE are shown with two decimals. A smaller difference, or one below this share of
#: the half width, is not visible.
_DECIMAL, _SHARE = 0.01, 0.05
#: Surprising distance from the expected score: wrong where 0.8 is expected, or right where 0.2 is.
_SURPRISE = 0.8
_EXACT = 100  # larger sizes of random samples are rounded to two digits
#: Number of different texts from which on their common beginning counts as worked examples.
_LEAST_TEXTS = 3
_WITHOUT_SCORE = (Outcome.ERROR, Outcome.REFUSED, Outcome.UNPARSED, Outcome.TRUNCATED)
_MANY = 0.1  # share of answers without a score that is worth a warning


TrustLevel = TypeAliasType("TrustLevel", Literal["good", "fair", "poor"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far to trust a score, and the one reason that matters most."""

    level: TrustLevel
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """The few figures of a result that people pass on."""

    examinee: str
    bank: Annotated[
        str, Field(description="Name of the bank, with the tags that the score is about.")
    ]
    score: float
    interval: Annotated[
        Interval | None, Field(description="95 % interval; null if every question was asked.")
    ]
    answers: Annotated[str | None, Field(description="For example `15 of 20 right`.")]
    asked: int
    n_items: Annotated[int, Field(description="Number of questions that the score is about.")]
    n_askable: Annotated[int, Field(description="Number of these that tests may ask.")]
    equivalent_random_items: int | None
    usd: float | None
    usd_all: Annotated[
        float | None, Field(description="What asking all would cost at the same price each.")
    ]
    trust: Trust
    better_than: Annotated[
        float | None,
        Field(description="Share of the reference models with a lower score; null if unknown."),
    ]
    recent: Annotated[
        RecentRankFigures | None,
        Field(description="Rank among the newest reference agents; null if too few have a date."),
    ]
    theta: float | None
    se: float | None
    theta_reason: Annotated[
        str | None, Field(description="Why there is no theta; null if there is one.")
    ]


def answers_right(scored: int, right: int | None, mean: float | None) -> str | None:
    """Say how many answers were right; None without a scored answer, or where not stored."""
    if mean is None:
        return None
    if right is not None:
        return f"{right:,} of {scored:,} right"
    return f"mean score {mean:.2f} over {count(scored, 'answer')}"


def as_exact_as(random_items: int | None, *, is_known: bool) -> str | None:
    """Say how many random questions give an interval of the same width; None where unknown.

    A score that `is_known` exactly has no interval.
    """
    if is_known:
        return "all questions were asked"
    if random_items is None:
        return None
    if random_items >= _EXACT:
        random_items = round(random_items, 2 - len(str(random_items)))
    return f"as exact as about {count(random_items, 'random question')}"


def begins_alike(texts: Sequence[str]) -> int:
    """Number of characters, in whole lines, of the worked examples that all texts begin with."""
    if len(set(texts)) < _LEAST_TEXTS:
        return 0
    first, last = min(texts), max(texts)
    alike = takewhile(bool, (one == other for one, other in zip(first, last, strict=False)))
    return first[: sum(alike)].rfind("\n") + 1


def dollars(usd: float) -> str:
    """Format an amount of money: four decimals below $1, two digits of a tiny amount."""
    if usd >= 1 or usd <= 0:
        return f"${usd:,.2f}"
    return f"${usd:.{4 if usd >= 0.0001 else 1 - floor(log10(usd))}f}"


def is_surprising(score: float | None, expected: float | None) -> bool:
    """Whether an almost certain answer was missed, or an almost hopeless one was right."""
    return score is not None and expected is not None and abs(score - expected) >= _SURPRISE


def usd_per_item(figures: Mapping[str, Any]) -> float | None:
    """Mean cost of a session's items, as if the cache had saved nothing; None where unknown."""
    usage = figures["usage"]
    # The cost includes that of trial questions.
    items = figures["progress"]["items"] + (figures.get("pretest") or {"items": 0})["items"]
    spent, kept = usage["usd"], usage.get("cache")
    saved = 0.0 if kept is None else kept["usd"]
    # What the cache saved is also of judges, whose calls the session's cost leaves out.
    if spent is None or saved is None or not items or (kept and usage.get("judge")):
        return None
    return float((spent + saved) / items)


def took(milliseconds: float) -> str:
    """Format how long an answer took."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s"


def headline_lines(headline: Headline) -> list[str]:
    """Format a headline in four lines."""
    lo, hi = ends(headline.interval)
    is_part = lo is not None and headline.asked < headline.n_askable
    spent = []
    if is_part:
        calls = min(100 * headline.asked / headline.n_askable, 99.9)  # not all of them
        spent.append(f"{calls:.{'1f' if calls > 99 else '2g'}} % of the calls")
    if headline.usd is not None and headline.usd_all and is_part:
        spent.append(f"{dollars(headline.usd)} instead of {dollars(headline.usd_all)}")
    interval = (
        "" if lo is None or hi is None else f"  (95 % interval {100 * lo:.1f} to {100 * hi:.1f})"
    )
    answers = "" if headline.answers is None else f" ({headline.answers})"
    exact = as_exact_as(headline.equivalent_random_items, is_known=headline.interval is None)
    worth = "; ".join(filter(None, (exact, ", ".join(spent))))
    better, recent = headline.better_than, headline.recent
    ability = f"ability (theta): {headline.theta_reason}"
    if headline.theta is not None:
        error = "" if headline.se is None else f", SE {headline.se:.2f}"
        ability = f"ability (theta) {headline.theta:+z.2f}{error}"
    place = []
    if better is not None:
        place.append(f"better than {100 * better:.0f} % of the reference models")
    if recent is not None:
        share = f"better than {100 * recent['better_than']:.0f} %"
        place.append(f"{share} of the {recent['agents']} agents since {recent['since']}")
    # A test for the score of some tags also asks questions of other tags.
    of = "of" if headline.asked <= headline.n_items else "questions for the score of"
    return [
        f"{headline.examinee} on {headline.bank}: {100 * headline.score:.1f} %{interval}",
        f"from {headline.asked:,} {of} {headline.n_items:,} questions{answers}"
        + (f": {worth}" if worth else ""),
        f"trust: {headline.trust.level}. {headline.trust.reason}",
        "; ".join((*place, ability)),
    ]


@dataclass(frozen=True, slots=True)
class Unscored:
    """Answers of a test that have no score, or count as wrong because they were unparseable.

    Attributes:
        left_out: Outcome -> number of answers without a score, where there are any. Theta and its
            interval leave them out; the lower end of the score's interval allows for them.
        wrong: Number of unparseable answers that count as wrong by the test's policy.
        share_left_out: Share of answers left out; 0 if they are few or there is no result.
        share_wrong: Share of unparseable answers that count as wrong; 0 if they are few.
    """

    left_out: dict[str, int]
    wrong: int
    share_left_out: float
    share_wrong: float

    @property
    def wrong_words(self) -> str | None:
        """Warning of many unparseable answers that count as wrong; None if they are few."""
        if not self.share_wrong:
            return None
        return (
            f"{percent(self.share_wrong)} of the answers could not be parsed, and count as wrong: "
            "read some of them."
        )


def unscored(figures: Mapping[str, Any]) -> Unscored:
    """Count the answers without a score in figures of a session or of its report."""
    progress, reason = figures["progress"], figures.get("estimate", {}).get("reason")
    return lost_answers(
        figures["outcomes"],
        closed=progress["items"],
        scored=progress["scored"],
        no_result=reason is not None and figures.get("score") is None,
    )


def lost_answers(
    outcomes: Mapping[str, int], *, closed: int, scored: int, no_result: bool
) -> Unscored:
    """Count the answers without a score from the outcomes and the closed and scored answers."""
    ended = sum(n for name, n in outcomes.items() if name != Outcome.SCORED)
    wrong = ended - closed + scored
    left_out = {outcome.value: outcomes.get(outcome.value, 0) for outcome in _WITHOUT_SCORE}
    left_out[Outcome.UNPARSED] -= wrong
    n_left_out, many = sum(left_out.values()), max(_MANY * closed, 1)
    is_shown = scored and not no_result and n_left_out >= many
    return Unscored(
        left_out={name: n for name, n in left_out.items() if n},
        wrong=wrong,
        share_left_out=n_left_out / closed if is_shown else 0.0,
        share_wrong=wrong / closed if wrong >= many else 0.0,
    )


def missed_margin(
    wanted: float | None, headline: Headline | None, lost: Unscored, session_id: str
) -> str | None:
    """Say by how much a test missed its requested margin, and what would reach the margin."""
    if wanted is None or headline is None or headline.interval is None or not headline.asked:
        return None
    lo, hi = ends(headline.interval)
    reached = ((hi or 0.0) - (lo or 0.0)) / 2
    if reached <= wanted:
        return None
    from app.engine.prediction.sample_size import items_for  # loads numpy, which few commands need

    known_to, goal = f"{100 * reached:.1f}", f"{100 * wanted:g}"
    beyond = "not" if float(known_to) > float(goal) else "just over"
    told = f"±{known_to} points, {beyond} ±{goal}"
    if share := lost.share_left_out + lost.share_wrong:
        return (
            f"{told}: {percent(share)} of the answers have no score or could not be parsed. "
            f"More questions do not help: read them with sextant sessions answers {session_id}"
        )
    n_items, askable = headline.n_items, headline.n_askable
    needed = items_for(wanted, reached=reached, n_asked=headline.asked, n_items=n_items)
    if needed > askable:
        return f"{told}: the {askable:,} questions that may be asked do not suffice"
    if needed <= headline.asked:  # also of other tags than the score's
        return told
    return (
        f"{told}: about {needed} questions would do "
        f"(sextant sessions extend {session_id} --max-items {needed})"
    )


def provisional_caution(uncertainty: str | None, *, provisional: bool) -> str | None:
    """Warning where parameters are guesses; says how uncertain they are where that is known."""
    if uncertainty or not provisional:
        return uncertainty
    return (
        "The bank's parameters are a guess: they rest on no real model's answers. Do not decide "
        "anything by ability (theta)."
    )


def whole_bank(n_counted: int, n_uncalibrated: int) -> str:
    """Name the questions that the score of the whole bank covers.

    It counts those with parameters, quarantined ones included, and excludes uncalibrated ones.
    """
    return f"the bank's {n_counted:,} calibrated questions" if n_uncalibrated else "the whole bank"


def uncounted(n_uncalibrated: int) -> str | None:
    """Say how many questions without parameters the score excludes; None if there are none."""
    if not n_uncalibrated:
        return None
    return f"The score excludes {count(n_uncalibrated, 'uncalibrated question')}."


def unparsed_caution(policy: str, when_calibrated: str | None) -> str | None:
    """Warning where a test and its bank's calibration count unparseable answers differently."""
    if when_calibrated in (None, policy):
        return None
    return (
        f"Unparseable answers {UNPARSED_WORDS[policy]} here; when the bank was calibrated, they "
        f"{_PAST[when_calibrated]}. The score does not compare with those of the reference models."
    )


_MODES = {
    "loglikelihood": "its options were compared by how likely the models found them",
    "generate": "answers were written and read",
}
_MODES_HERE = {
    "loglikelihood": "options are compared by how likely the model finds them",
    "generate": "the answer is asked for",
}


def asked_caution(asked: Mapping[str, Any], when_calibrated: Mapping[str, Any]) -> str | None:
    """Warning where a test asks in another way than the calibration of its bank.

    A field that is missing in `asked` counts as no difference.
    """
    differing = {
        name for name, known in when_calibrated.items() if name in asked and asked[name] != known
    }
    if not differing and "wanted" not in asked:
        return None
    said = []
    if "mode" in differing:
        said.append(
            f"when the bank was calibrated, {_MODES[when_calibrated['mode']]}; here "
            f"{_MODES_HERE[asked['mode']]}"
        )
    elif "wanted" in asked:
        said.append(
            "by the bank's settings options are compared by how likely the model finds them; here "
            f"{_MODES_HERE[asked['mode']]}"
        )
    elif "normalise" in differing:
        said.append(
            "likelihoods were divided by the lengths of the options when the bank was calibrated, "
            "and are not here"
            if asked.get("normalise") == "none"
            else "likelihoods are divided by the lengths of the options here, and were not, or by "
            "other lengths, when the bank was calibrated"
        )
    if "shots" in differing:
        said.append(
            f"{when_calibrated['shots']} examples stood before each question when the bank was "
            f"calibrated, and {asked['shots']} stand here"
        )
    elif "template_hash" in differing and "mode" not in differing:
        said.append("the prompt around the questions reads otherwise than when it was calibrated")
    if "mode" not in differing:
        said += _drawn_otherwise(asked, when_calibrated)
    if "scorer" in differing and "mode" not in differing:
        said.append("another scorer is used than when the bank was calibrated")
    if not said:
        return None
    words = "; ".join(said)
    return (
        f"{words[:1].upper()}{words[1:]}. The score does not compare with those of the reference "
        "models."
    )


def _drawn_otherwise(asked: Mapping[str, Any], when_calibrated: Mapping[str, Any]) -> list[str]:
    said = []
    limit, before = asked.get("max_tokens"), when_calibrated.get("max_tokens")
    if limit is not None and before is not None and limit < before:  # a higher limit cuts nothing
        said.append(
            f"answers end after {limit} tokens here, and had up to {before} when the bank was "
            "calibrated"
        )
    now, then = asked.get("temperature"), when_calibrated.get("temperature")
    if now is not None and then is not None and now != then:
        said.append(
            f"answers are drawn at temperature {now:g} here, and were at {then:g} when the bank "
            "was calibrated"
        )
    return said


def interval_note(
    theta: float | None, se: float | None, lo: float | None, hi: float | None, *, corrected: bool
) -> str | None:
    """Say why theta's 95 % interval differs from 1.96 standard errors; None where it does not."""
    if theta is None or se is None or lo is None or hi is None:
        return None
    half = 1.96 * se
    if max(abs(theta - lo - half), abs(hi - theta - half)) < max(_DECIMAL, _SHARE * half):
        return None
    if not corrected:
        return "the interval is not symmetric: that is what these answers leave open"
    width = "wider" if hi - lo > 2 * half else "narrower"
    return f"the interval is {width} than 1.96 SE either way, as cross-validation found"
