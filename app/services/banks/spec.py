"""A bank and its scorers as their owner describes them, checked within limits."""

import asyncio
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime

from app import scorers
from app.adapters.prompting import PromptStyle
from app.errors import BusyError, FieldProblem, InvalidInputError, SextantError
from app.exchange.files import MAX_PROBLEMS
from app.exchange.item_record import ItemRecord
from app.fair_semaphore import waited_s
from app.items import BY_KIND, ItemContent, ScorerSpec
from app.records.banks import OPEN, Bank, BankSpec
from app.records.fields import shallow
from app.storage.identifiers import new_id

#: Largest number of pretest items in one session.
MAX_PER_SESSION = 1000


VISIBILITIES = ("open", "withheld")
UNPARSED_POLICIES = ("missing", "wrong")

# Names stand in URLs, where `/` and `:` are separators and a bank may also be named by its id.
_ID = "bnk_[0-9a-z]{26}"
_NAME = re.compile(rf"(?!\s|{_ID}\Z)[^/:\x00-\x1f\x7f\ud800-\udfff]{{1,200}}(?<!\s)")
_CHOICE, _EXACT = ScorerSpec("choice"), ScorerSpec("exact")


def item_scorer(own: ScorerSpec | None, default: ScorerSpec, content: ItemContent) -> ScorerSpec:
    """The scorer of an item: its own, or the default of its bank."""
    if own is not None:
        return own
    if default.name == BY_KIND:
        return _CHOICE if content.choices else _EXACT
    return default


def calls_out(spec: ScorerSpec) -> bool:
    """Whether this scorer calls endpoints."""
    return spec.name != BY_KIND and isinstance(scorers.build(spec), scorers.CallingScorer)


def is_bank_id(text: str) -> bool:
    """Whether a text has the form of a bank id; no bank may have such a name."""
    return re.fullmatch(_ID, text) is not None


def new_bank(spec: BankSpec) -> Bank:
    """A new bank, ready to be stored.

    Raises:
        InvalidInputError: As for `check_spec`.
    """
    check_spec(spec)
    now = datetime.now(UTC)
    return Bank(id=new_id("bnk"), revision=1, created_at=now, updated_at=now, **shallow(spec))


def check_spec(spec: BankSpec) -> None:
    """Refuse settings that no session could use.

    Raises:
        InvalidInputError: A blank name, an unknown visibility, policy or scorer, or a prompt that
            cannot be read.
    """
    problems = [
        FieldProblem(f"/{name}", f"expected one of {', '.join(known)}, got {value!r}")
        for name, value, known in (
            ("visibility", spec.visibility, VISIBILITIES),
            ("unparsed_policy", spec.unparsed_policy, UNPARSED_POLICIES),
        )
        if value not in known
    ]
    if spec.shared and spec.visibility != OPEN:
        detail = "expected false: a withheld bank stays in its project"
        problems.append(FieldProblem("/shared", detail))
    if not _NAME.fullmatch(spec.name):
        expected = (
            "1 to 200 characters without / : or control characters, not blank at either end"
            " and not of a bank id's form"
        )
        problems.append(FieldProblem("/name", f"expected {expected}, got {spec.name!r:.80}"))
    if not 0 <= spec.pretest_items <= MAX_PER_SESSION:
        expected = f"expected 0 to {MAX_PER_SESSION}, got {spec.pretest_items}"
        problems.append(FieldProblem("/pretest_items", expected))
    if problems:
        raise InvalidInputError(f"{problems[0].detail}.", problems=problems)
    PromptStyle.from_dict(spec.prompt)
    if spec.default_scorer.name != BY_KIND:
        scorers.build(spec.default_scorer)


#: Time limit for checking all scorers of one request, seconds.
_TIMEOUT_S = 30.0

#: What is wrong with the scorers of one request, by `name_of`.
Faults = dict[str, SextantError]


def name_of(spec: ScorerSpec) -> str:
    """Name that differs between different scorers."""
    return json.dumps([spec.name, dict(spec.params)], sort_keys=True)


async def faults_of(specs: Iterable[ScorerSpec | None]) -> Faults:
    """What is wrong with some scorers; empty where all can be used.

    Raises:
        InvalidInputError: The check takes too long.
        BusyError: The helper processes have too much to do.
    """
    different = {name_of(spec): spec for spec in specs if spec is not None}
    found: Faults = {}
    before = waited_s.get()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for name, spec in different.items():
                if spec.name == BY_KIND:
                    continue
                try:
                    await scorers.check(spec)
                except InvalidInputError as error:
                    found[name] = error
    except TimeoutError as error:
        if waited_s.get() - before > _TIMEOUT_S / 2:  # the work of others took most of it
            raise BusyError("Too many scorers are at work: try again in a moment.") from error
        raise InvalidInputError(
            f"The {len(different)} scorers of this request take more than {_TIMEOUT_S:g} s to "
            "check: use fewer or simpler ones."
        ) from error
    return found


async def require_usable(spec: ScorerSpec) -> None:
    """Refuse a scorer that cannot be used.

    Raises:
        InvalidInputError: The scorer cannot be used; the message says why.
        UnknownNameError: No scorer of that name is installed.
        BusyError: The helper processes have too much to do.
    """
    for fault in (await faults_of([spec])).values():
        raise fault


def require_markable(records: Iterable[ItemRecord], default: ScorerSpec) -> None:
    """Refuse items whose scorer can accept no answer, as when a numeric target is no number.

    Raises:
        InvalidInputError: Lists the row and field of each such item, up to a limit.
    """
    built: dict[str, scorers.Scorer] = {}
    problems: list[FieldProblem] = []
    for record in records:
        spec = item_scorer(record.scorer, default, record.content)
        scorer = built.get(name := name_of(spec))
        if scorer is None:
            scorer = built[name] = scorers.build(spec)
        if (expected := scorer.unmarkable(record.content)) is not None:
            place = f"items:{record.row}:target" if record.row else "/target"
            got = f"{record.content.target[0]!r:.80} of item {record.key!r:.80}"
            detail = f"expected {expected}, with which `{spec.name}` compares answers, got {got}"
            problems.append(FieldProblem(place, detail))
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        first = problems[0]
        raise InvalidInputError(f"{first.pointer}: {first.detail}.", problems=problems)
