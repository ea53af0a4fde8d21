"""What a session's figures say, for all who tell them: the page, the terminal, files."""

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

#: What answers that nobody can read do, by policy.
UNPARSED_WORDS = {"wrong": "count as wrong", "missing": "are left out"}
_PAST = {"wrong": "counted as wrong", "missing": "were left out"}
_Z_95 = 1.96
#: Ends are shown with two decimals, and so is the SE: less than that, or than this share of the
#: half width, shows no difference.
_DECIMAL, _SHARE = 0.01, 0.05
#: How far a score is from the expected one that surprises: a miss at 80 %, a hit at 20 %.
_SURPRISE = 0.8
_EXACT = 100  # sizes of samples from here on are told with two digits
#: Texts from which on what all begin with is thought to be no part of any.
_LEAST_TEXTS = 3
_WITHOUT_SCORE = (Outcome.ERROR, Outcome.REFUSED, Outcome.UNPARSED, Outcome.TRUNCATED)
_MANY = 0.1  # answers without a mark, as a share of all, that are worth a warning


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
    bank: Annotated[str, Field(description="With the tags that the score is of.")]
    score: float
    interval: Annotated[
        Interval | None, Field(description="95 % interval; null where everything was asked.")
    ]
    answers: Annotated[str | None, Field(description="Such as `15 of 20 right`.")]
    asked: int
    n_items: Annotated[int, Field(description="Questions that the score is of.")]
    equivalent_random_items: int | None
    usd: float | None
    usd_all: Annotated[
        float | None, Field(description="What all questions would cost at that price.")
    ]
    trust: Trust
    better_than: Annotated[
        float | None,
        Field(description="Share of the reference models that are weaker; null: unknown."),
    ]
    recent: Annotated[
        RecentRankFigures | None,
        Field(
            description="Null where the bank does not know the days of its agents, or of too few."
        ),
    ]
    theta: float | None
    se: float | None
    theta_reason: Annotated[str | None, Field(description="Why theta is not told.")]


def answers_right(scored: int, right: int | None, mean: float | None) -> str | None:
    """How the answers were marked, in words; None without a marked one, or where not kept."""
    if mean is None:
        return None
    if right is not None:
        return f"{right:,} of {scored:,} right"
    return f"mean score {mean:.2f} over {scored:,} {'answer' if scored == 1 else 'answers'}"


def as_exact_as(random_items: int | None, *, is_known: bool) -> str | None:
    """What a score's interval is worth in random questions; None where that is not known.

    Args:
        random_items: So many of them would be as exact.
        is_known: The score has no interval.
    """
    if is_known:
        return "all questions were asked"
    if random_items is None:
        return None
    if random_items >= _EXACT:
        random_items = round(random_items, 2 - len(str(random_items)))
    what = "question" if random_items == 1 else "questions"
    return f"as exact as about {random_items:,} random {what}"


def begins_alike(texts: Sequence[str]) -> int:
    """Characters of the worked examples that all texts begin with, up to the end of a line."""
    if len(set(texts)) < _LEAST_TEXTS:
        return 0
    first, last = min(texts), max(texts)
    alike = takewhile(bool, (one == other for one, other in zip(first, last, strict=False)))
    return first[: sum(alike)].rfind("\n") + 1


def dollars(usd: float) -> str:
    """An amount of money; of small ones the parts of a cent, of tiny ones two digits."""
    if usd >= 1 or usd <= 0:
        return f"${usd:,.2f}"
    return f"${usd:.{4 if usd >= 0.0001 else 1 - floor(log10(usd))}f}"


def is_surprising(score: float | None, expected: float | None) -> bool:
    """Whether an answer is a miss where a hit was all but sure, or the other way round."""
    return score is not None and expected is not None and abs(score - expected) >= _SURPRISE


def took(milliseconds: float) -> str:
    """How long an answer took."""
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s"


def headline_lines(headline: Headline) -> list[str]:
    """A headline in four lines."""
    lo, hi = ends(headline.interval)
    share = f"{100 * headline.asked / headline.n_items:.2g} % of the calls"
    spent = [share] if lo is not None else []
    if headline.usd is not None and headline.usd_all and lo is not None:
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
        error = "?" if headline.se is None else f"{headline.se:.2f}"
        ability = f"ability (theta) {headline.theta:+.2f} ± {error}"
    place = [] if better is None else [f"better than {100 * better:.0f} % of the reference models"]
    if recent is not None:
        share = f"better than {100 * recent['better_than']:.0f} %"
        place.append(f"{share} of the {recent['agents']} agents since {recent['since']}")
    return [
        f"{headline.examinee} on {headline.bank}: {100 * headline.score:.1f} %{interval}",
        f"from {headline.asked:,} of {headline.n_items:,} questions{answers}"
        + (f": {worth}" if worth else ""),
        f"trust: {headline.trust.level}. {headline.trust.reason}",
        "; ".join((*place, ability)),
    ]


@dataclass(frozen=True, slots=True)
class Unscored:
    """Answers of a test that did not simply get a score.

    Attributes:
        left_out: Answers without a score by outcome, those that occurred. Theta and its interval
            are those of the others; the lower end of the score's interval has room for these.
        wrong: Unparsed answers that count as wrong, as the test was told.
        share_left_out: Of all answers; 0 where they are too few to matter, or there is no result.
        share_wrong: Likewise of those that count as wrong.
    """

    left_out: dict[str, int]
    wrong: int
    share_left_out: float
    share_wrong: float

    @property
    def wrong_words(self) -> str | None:
        """What is to be said of many unparsed answers that count as wrong; None of few."""
        if not self.share_wrong:
            return None
        return (
            f"{percent(self.share_wrong)} of the answers could not be parsed, and count as wrong: "
            "read some of them."
        )


def unscored(figures: Mapping[str, Any]) -> Unscored:
    """What became of the answers of a test that nobody could score.

    Args:
        figures: Of a session, or of its report, which keeps the estimate elsewhere.
    """
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
    """The same by how many answers were closed, and scored, and what became of them."""
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


def provisional_caution(uncertainty: str | None, *, provisional: bool) -> str | None:
    """What is to be said where nobody calibrated the bank's parameters.

    Args:
        uncertainty: What guesses are worth by now, in words; None where that is not known.
        provisional: Whether they are guesses.
    """
    if uncertainty or not provisional:
        return uncertainty
    return (
        "The bank's parameters are a guess: they rest on no real model's answers. Do not decide "
        "anything by ability (theta)."
    )


def whole_bank(n_counted: int, n_uncalibrated: int) -> str:
    """What the score of the whole bank is of, in words.

    Args:
        n_counted: Questions of the version with parameters, quarantined ones included.
        n_uncalibrated: Those without, of which the score says nothing.
    """
    return f"the bank's {n_counted:,} calibrated questions" if n_uncalibrated else "the whole bank"


def uncounted(n_uncalibrated: int) -> str | None:
    """What is to be said where a bank has questions that its predicted score leaves out.

    Args:
        n_uncalibrated: Questions of the version without parameters.
    """
    if not n_uncalibrated:
        return None
    one = n_uncalibrated == 1
    return f"The score excludes {n_uncalibrated:,} uncalibrated question{'' if one else 's'}."


def unparsed_caution(policy: str, when_calibrated: str | None) -> str | None:
    """What is to be said where a test counts unreadable answers otherwise than its bank's."""
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
    """What is to be said where a test asks otherwise than its bank was asked when calibrated.

    Args:
        asked: How the test asks; what is not known stands for no difference.
        when_calibrated: How the answers behind the bank's parameters were obtained.
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
    if limit is not None and before is not None and limit < before:  # a longer one cuts nothing off
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
    """Why the 95 % interval of theta is not what its standard error says; None where it is."""
    if theta is None or se is None or lo is None or hi is None:
        return None
    half = _Z_95 * se
    if max(abs(theta - lo - half), abs(hi - theta - half)) < max(_DECIMAL, _SHARE * half):
        return None
    if not corrected:
        return "the interval is not symmetric: that is what these answers leave open"
    width = "wider" if hi - lo > 2 * half else "narrower"
    return (
        f"± is the standard error; the interval is {width} than 1.96 of it, as cross-validation "
        "found"
    )
