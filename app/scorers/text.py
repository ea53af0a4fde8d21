"""Reads written answers: text without markup, explicit statements, retractions, refusals.

Several scorers share these functions. All of them accept any unicode text and never raise.
"""

import re
import unicodedata
from collections.abc import Sequence

from app.items import Outcome
from app.scorers.base import NotScored

#: Only the last characters of a longer answer are read: they conclude it, and patterns stay fast.
MAX_CHARS = 20_000

_LATEX_TEXT = re.compile(
    r"\\(?:text(?:bf|it|rm)?|math(?:rm|bf|sf)|operatorname|underline|bf|rm)\s*\{([^{}]*)\}"
)

#: "The answer is", "Final answer:", and the same in other languages. "The answer is not 3" does not
#: match; "the answer is not 3 but 4" matches, and its claim begins after "but".
_STATEMENT = re.compile(
    r"""
    (?<!\w)(?:
        (?:answer|result|solution|choice|option|letter|selected|selection)\b
        (?:\s+(?:choice|option|letter))?
        (?:\s+(?:to|for|of|i|that|we)\s+[^.:\n=]{1,60}?)?
        | antwort | lösung | respuesta | réponse | risposta | resposta | ответ
        | đáp\s+án
    )
    (?:\s+(?:correct[aeo]?|corrett[aeo]|finale?))?
    \s*(?:\([^()\n]{0,20}\)\s*)?
    (?:
        (?:
            \s(?:is|are|to\s+be|would\s+be|must\s+be|should\s+be|ist|lautet|es|est|è|é|là)\b
            (?:
                \s+(?:not|nicht|no|pas|non)\s[^.\n]{1,40}?\s(?:but|sondern|sino|mais|ma)\s(?:rather\s)?
                | (?!\s+(?:not|never|nicht|no|pas|non|não)\b)
            )
            | ["']?\s*[:=：]
            | \s[-–—](?=\s)
        )\s*[:=：]?
    )
    | (?:答案|答え|答|정답)(?:\s*(?:应该)?(?:是|は|为|은|는|選)|\s*[:=：])\s*[:：]?
    | [选選](?:择|擇)?\s*[:：]?(?=\s*[(（]?[A-Z])
    """,
    re.IGNORECASE | re.VERBOSE,
)

_MAX_CLAIMS = 20
_MAX_CLAIM_CHARS = 1000
_BRACE = re.compile(r"\\(?:boxed|fbox)\s*\{|[{}]")
#: Answers in bold are short. Without a limit, text full of unclosed marks takes quadratic time.
_EMPHASIS = re.compile(
    r"(?<![\w*])\*\*(?=\S)(.{1,500}?)(?<=\S)\*\*(?![\w*])"
    r"|(?<!\w)__(.{1,500}?)__(?!\w)|`([^`\n]+)`"
)
#: Runs match as a whole and only once, because nonsense may have thousands of marks in a row.
_EMPHASIS_MARKS = re.compile(r"\*+|`+|(?<!\w)_++|(?<!_)_++(?!\w)")
#: White space at the start of a line; captured unless a heading or quote mark follows.
_LINE_START = re.compile(r"(?m)^(?:\s*+(?:#{1,6}|>)\s+|(\s++))")
_ANSWER_TAG = re.compile(r"<(/?)(?:final[_ ]?)?answer>", re.IGNORECASE)

_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")
_FRACTION_SIGN = re.compile("[½⅓⅔¼¾⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞]")
_ASCII_SIGNS = str.maketrans("\u2212\u2010\u2011\u2044‘’“”", "---/''\"\"")

_REFUSAL = re.compile(
    r"""
    \bi(?:['’]m|\s+am)\s+(?:really\s+|very\s+|so\s+)?sorry\b[^.\n]{0,40}\b(?:can['’]?t|cannot|can\s+not|
        unable|not\s+able|won['’]?t)
    | ^\W*sorry,?\s+(?:but\s+)?i\s+(?:can['’]?t|cannot|can\s+not|am\s+unable|won['’]?t)
    | \bi\s+(?:can['’]?t|cannot|can\s+not|won['’]?t|will\s+not|must\s+decline\s+to|refuse\s+to)\s+
        (?:help|assist|answer|provide|comply|fulfil|fulfill|discuss|engage|do\s+that|support|continue)
    | \bi(?:['’]m|\s+am)\s+(?:unable|not\s+able)\s+to\s+
        (?:help|assist|answer|provide|comply|fulfil|fulfill|discuss|engage)
    | \bas\s+an?\s+(?:ai|artificial\s+intelligence|(?:large\s+)?language\s+model)\b[^.\n]{0,60}
        \b(?:can['’]?t|cannot|unable|not\s+able|won['’]?t|do\s+not|don['’]?t)
    | \bi\s+(?:do\s+not|don['’]?t)\s+feel\s+comfortable
    | \b(?:against|violates?)\s+my\s+(?:guidelines|policy|policies|programming)
    """,
    re.IGNORECASE | re.VERBOSE,
)

#: Phrases that take back the claim before them.
_TAKES_BACK = (
    r"no|nope|nah|nein|non|wait|sorry|oops|correction|i\s+meant?|rather|instead|never\s+mind|"
    r"i\s+lied|(?:my\s+)?apologies|on\s+(?:second\s+thoughts?|reflection)|(?:just|only)\s+kidding|"
    r"(?:scratch|strike|forget|ignore|disregard)\s+(?:that|this|it)|my\s+(?:mistake|bad)|"
    r"i\s+(?:was|am)\s+(?:wrong|mistaken)|i\s+(?:take|retract|withdraw)\s+(?:that|it)(?:\s+back)?|"
    r"let\s+me\s+(?:correct|rephrase)(?:\s+\w+)?"
)
#: "No, Berlin" or "wait, it is 6", but not a check ("wait, let me see") or the denial of another
#: claim ("No, it is not Lyon"). "Actually" and similar words count only before a few words.
_RETRACTION = re.compile(
    r"""(?:(?<!:)\n|(?<!\n[A-Z])[.!…]|[?,;—–(\[]|[ ]-(?=\s)|[ ](?=but\s))[\s"'*_)>]{0,8}(?P<rest>
    (?:(?:oh|oops|hm+|ah|e+r|u[hm]|well|but|or|i'm|i\s+am)\b[,.!\s]{1,3})?(?:
      (?!(?-i:no)\.\s*\d)(?:"""
    + _TAKES_BACK
    + r""")(?=\s*(?:[,.!;:…—–]|-\s|\n|$)|\s+(?:wait|no|sorry|actually|it|the\s+answer)\b)
      (?!\W*(?:(?:wait|no|sorry|actually)\W+){0,3}(?:let\b|yes\b|i\s|is\s|there\b|seriously|really|
        no\s+(?:further|more|need|other|problem|doubt|trick|one)\b|
        (?:it|that|this)(?:'s|\s+is)\s+(?:right|correct|fine)\b|
        (?:(?:it|that|this)(?:'s|\s+is|\s+was)\s+)?not\s+(?!right|correct|true|it\b)))
    | (?:actually|e+r|hm+|make\s+(?:that|it)|i\s+meant?|(?<=or\s)rather|
        (?<=but\s)(?:really|in\s+fact))[,:]?\s+
      (?:(?:it|the\s+answer)(?:'s|\s+(?:is|was|should\s+be))\s+)?(?P<new>
      (?!(?:yes|i|we|you|he|she|they|it|this|that|there|not|never|correct|right|
        (?:good|great|nice|fair|interesting|tricky)\s+\w+)\b)
      (?:[^\s.!?]{1,40}[ \t]+){0,2}[^\s.!?]{1,40})(?=[.!?]|\s*(?:\n|$))))""",
    re.IGNORECASE | re.VERBOSE,
)
_DENIED_BEFORE = re.compile(
    r"""(?:\b(?:not|cannot|neither|nor|never|exclud(?:es|ing)|eliminat(?:es|ing)|nicht|pas|except|
    rul(?:es|ing)\s+out|rather\s+than|instead\s+of|unlike|i\s+doubt|(?:any\w+|all|everything)\s+but|
    (?:first|initially|originally),?\s+(?:i\s+)?(?:thought|said|guessed|assumed|believed))|n't)
    (?:\s+(?:be|the|an?|option|choice|answer|letter|it|it's|is|was|in|at|of|that|think|really|
    actually|likely))*\s*[("'\[*_$]*$""",
    re.IGNORECASE | re.VERBOSE,
)
_DENIED_AFTER = re.compile(
    r"""(?<!\bno)[.?!"'*_\s]{1,8}(?:never|no\s+way|not\s+(?:really|at\s+all))\s*(?:[.!;]|$)
    | [()\[\]"'*_.,;!?$\s]{0,8}(?:but\s+|and\s+)?(?:(?:that|this|it|which)(?:\s+answer)?\b\s*)?(?:
    [:–—-]?\s?(?:wrong|incorrect|false)\s*(?:[.!;)\]]|$)
    | (?:is|was|seems|would\s+be|'s)(?:\s+(?:clearly|obviously|just|also|definitely))?(?:
      \s+(?:(?:(?:an?|the)\s+)?(?:wrong|incorrect|false)|impossible|(?:ruled\s+)?out\s*(?:[.!;]|$)|
        a\s+(?:lie|joke|mistake))
      | (?:n't|\s+not)\s+(?:right|correct|true|it\b|the\s+(?:(?:right|correct)\s+)?
        (?:answer|one|option|choice)))
    )(?!,?\s+(?:to|that|though)\b)""",
    re.IGNORECASE | re.VERBOSE,
)

_OPENING_CHARS = 300
_REFUSED = NotScored(outcome=Outcome.REFUSED, reason="The examinee declined to answer.")


def is_blank(text: str) -> bool:
    """Whether `text` has no visible character."""
    return all(c.isspace() or unicodedata.category(c) in ("Cf", "Cc") for c in set(text))


def plain(text: str) -> str:
    """`text` with plain characters, and without LaTeX text commands and answer tags.

    Compatibility forms (full-width letters, ligatures) become plain letters. Raised digits become
    powers ("10⁶" is 10^6, not 106). Invisible characters are removed. Typographic minus signs and
    quotes become ASCII.
    """
    text = text[-MAX_CHARS:]
    if not text.isascii():
        text = _RAISED.sub(lambda m: "^" + m[0], text)
        text = _LOWERED.sub(lambda m: "_" + m[0], text)
        # The spaces make a digit and a fraction sign ("2½") a mixed number.
        text = _FRACTION_SIGN.sub(lambda m: f" {m[0]} ", text)
        text = unicodedata.normalize("NFKC", text).translate(_ASCII_SIGNS)
        text = "".join(c for c in text if unicodedata.category(c) != "Cf")
    text = _ANSWER_TAG.sub(lambda m: "\n" if m[1] else "\nAnswer: ", text)
    return _LATEX_TEXT.sub(r"\1", text)


def last_boxed(text: str) -> str | None:
    r"""Content of the last `\boxed{...}` with balanced braces; `None` if there is none."""
    opened: list[int | None] = []
    closed: list[tuple[int, int]] = []
    for match in _BRACE.finditer(text):
        if match[0] != "}":
            opened.append(match.end() if match[0] != "{" else None)
        elif opened and (start := opened.pop()) is not None:
            closed.append((start, match.start()))
    return text[slice(*max(closed))].strip() or None if closed else None


def statements(text: str) -> tuple[str, ...]:
    """Text after each "the answer is ..." or "Answer: ...", up to the end of its line, in order.

    If the rest of the line is empty ("Final answer:" as a heading), the next line that is not empty
    counts. Only the last 20 are returned, at most 1,000 characters of each, because an examinee
    that writes in a loop may state thousands.
    """
    found = []
    for match in _STATEMENT.finditer(text):
        rest = text[match.end() : match.end() + _MAX_CLAIM_CHARS].lstrip(" \t*_:=")
        if not rest.partition("\n")[0].strip():
            rest = rest.lstrip()
        claim = rest.partition("\n")[0].strip()
        if claim:
            found.append(claim)
    return tuple(found[-_MAX_CLAIMS:])


def last_line(text: str) -> str:
    """The last line that is not blank; empty for a blank text."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def sole_emphasis(text: str) -> str | None:
    """The only passage in bold or code on the last line; `None` if there are none or several."""
    found = {next(filter(None, groups)).strip() for groups in _EMPHASIS.findall(last_line(text))}
    return found.pop() if len(found) == 1 else None


def without_emphasis(text: str) -> str:
    """`text` without markdown's bold, italic, code and heading marks."""
    text = _EMPHASIS_MARKS.sub("", text)
    return _LINE_START.sub(lambda m: m[1] or "", text)


def settled(text: str) -> str:
    """`text` without what it takes back: all before "No, ...", or a sentence ("Oslo? No, ...").

    "Oslo. Actually, Oslo since 1925." repeats its claim, so nothing is removed from it.
    """
    kept, done = "", 0
    for match in _RETRACTION.finditer(text):
        before = kept + text[done : match.start()]
        ends = max(before.rfind(mark) for mark in (". ", "! ", "? ", "\n", "(")) + 1
        claim = before[ends:].strip(" *_\"'").casefold()
        new = match.end() if match["new"] is None else match.start("new")
        after = text[new : new + 400].lstrip(" ,.:;*_\"'-").casefold()
        if claim and after.startswith(claim) and not after[len(claim) :][:1].isalnum():
            continue
        kept = before[:ends] + " " if text[match.start()] in "?,;—–([ " else ""
        done = match.start("rest")
    return kept + text[done:]


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether "not" or the like precedes `text[start:end]`, or "is wrong" or the like follows."""
    before = text[:start][-60:]
    return bool(_DENIED_AFTER.match(text, end) or _DENIED_BEFORE.search(before))


def stands(claim: str, text: str) -> bool:
    """Whether the last mention of `claim` is not denied; case matters for single letters."""
    whole = rf"(?<!\w)(?<!\d[.,]){re.escape(claim)}(?!\w)(?![.,]\d)"
    found = [*re.finditer(whole, text, re.IGNORECASE if len(claim) > 1 else re.NOFLAG)]
    return not found or not is_denied(text, *found[-1].span())


def is_refusal(text: str) -> bool:
    """Whether `text` clearly declines to answer."""
    return _REFUSAL.search(plain(text)) is not None


def declined(text: str, targets: Sequence[str]) -> NotScored | None:
    """Result for an answer that opens with a refusal, unless a target is a refusal; else None.

    Only the opening is checked, because a story may quote a refusal further down.
    """
    if not is_refusal(text[:_OPENING_CHARS]):
        return None
    if any(is_refusal(target[:_OPENING_CHARS]) for target in targets):
        return None
    return _REFUSED


def no_answer(text: str, reason: str) -> NotScored:
    """Result for an answer in which nothing could be scored: refused or unparsed."""
    if is_refusal(text):
        return _REFUSED
    return NotScored(outcome=Outcome.UNPARSED, reason=reason)
