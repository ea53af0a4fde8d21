"""Reads numbers as people and models write them: separators, fractions, powers, percent, units."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import product
from math import prod

from app.scorers.text import is_denied, plain, settled

#: Without traps, an impossible operation gives NaN, which `numbers_in` leaves out.
_CONTEXT = Context(prec=60, traps=[])

_GROUP_SPACE = re.compile(r"(?<=\d)(?:[\u00a0\u2009\u202f'’_]|\\[,;:!]|\{,\})(?=\d{3}(?!\d))")
#: A formula such as $2\sqrt{3}$, whose first dollar is no currency.
_DOLLARS = (
    r"\$(?=[-+]?[\d.])(?=[^$\n]*[\\^A-Za-z])"
    r"(?:\\[A-Za-z]++|\\[^A-Za-z\n]|[A-Za-z]{1,2}+(?![A-Za-z])|[^$\n\\A-Za-z])++(?<!\s)\$(?!\s?\d)"
)
_CURRENCY = re.compile(rf"({_DOLLARS})|(?:\b[A-Z]{{1,2}})?\\?[$€£¥₹₩₽]\s?(?=[-+]?[\d.])")
_FACTOR_WORD = (
    r"(?i:(?:(?:hundred|thousand)(?:th)?|dozen|tausend|(?:m|b|tr|quadr)illion|lakh|crore)s?)"
    r"(?![A-Za-z])"
)
#: "**50** thousand", "50 (thousands)" and "50-thousand" are not 50.
_BEFORE_FACTOR = re.compile(
    rf"(?<=\d)(}}?)(?:[^\w.,:;?!}}]|_|\\[,;:!)]){{1,6}}(?:(?<=\()in\s)?({_FACTOR_WORD})"
)
#: "It is minus 7", but not "ten minus 7".
_MINUS_WORD = re.compile(
    r"(^|[=:{]|\b(?:is|are|was|be|equals|gives|get|to|of|or))([ \t*_$(]*+)"
    r"(?:minus|negative)[ \t]++(?=[\d.])",
    re.IGNORECASE | re.MULTILINE,
)
_FRAC_AFTER_DIGIT = re.compile(r"(?<=\d)\s*\\[dt]?frac")
#: Not behind a minus that subtracts, nor a signed one behind a minus: --1/2 is no number.
_FRAC = re.compile(
    r"(?<![\w)}\]]-)(?!(?<=-)\\[dt]?frac\s*\{\s*[-+])"
    r"\\[dt]?frac\s*\{\s*([-+]?\d+)\s*\}\s*\{\s*(\d+)\s*\}"
)

_NUMBER = re.compile(
    r"""
    (?<![\w^\\])(?<!\d[.,:/\-])(?<!\^\{)
    (?P<sign>[-+][ \t]?)?
    (?:
        (?:(?P<whole>\d{1,9})\s+)?(?P<over>\d{1,18})\s?/\s?(?P<under>\d{1,18})
      | (?P<grouped>[1-9]\d{0,2}(?:,\d{2,3})*,\d{3}(?:\.\d+)?)
      | (?P<european>\d{1,3}(?:\.\d{3})+,\d+ | \d{1,3}(?:\.\d{3}){2,})
      | (?P<comma>\d+,(?:\d{1,2}|\d{4,})|0,\d{3})
      | (?P<point>\d+(?:\.\d+)?|\.\d+)
    )
    (?!\d)(?![.,:/\-]\d)
    (?:
        [eE](?P<exponent>[+-]?\d{1,3})(?![\w.])
      | \s*(?:×|x|\*|·|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*
        (?:\{\s*(?P<tens_braced>[+-]?\d{1,3})\s*\}|(?P<tens>[+-]?\d{1,3})(?![\d^*]))
      | (?:\s*\^\s*|\*\*(?!\s)|\s+\*\*\s+)  # in "**12** 3 inch", the marks end bold text
        (?:\{\s*(?P<power_braced>-?\d{1,3})\s*\}|(?P<power>-?\d{1,3})(?!\d))(?!\s*(?:\^|\*\*))
    )?
    (?P<scale>\s*\\?%|\s*(?:percent|per\s+cent)\b|\s?(?:[kKMB]|(?i:bn|mn|mio|tn|trn))\b
      |(?:\s?"""
    + _FACTOR_WORD
    + ")+)?",
    re.VERBOSE,
)
_FACTORS = (
    "%=0.01 percent=0.01 hundredth=0.01 thousandth=0.001 dozen=12 hundred=100 k=1e3 thousand=1e3 "
    "tausend=1e3 lakh=1e5 m=1e6 mn=1e6 mio=1e6 million=1e6 crore=1e7 b=1e9 bn=1e9 billion=1e9 "
    "tn=1e12 trn=1e12 trillion=1e12 quadrillion=1e15"
)
_SCALES = {word: Decimal(by) for word, by in re.findall(r"(\S+)=(\S+)", _FACTORS)}
_WORD = re.compile(r"%|[A-Za-z]+")
#: These scales may not apply: a question may ask for a percentage, and K, M and B are also units.
_LOOSE = re.compile(r"(?:%|per\s?cent|[KMB])$")
#: Suffixes that are no algebraic factor: SI symbols, common abbreviations, ordinals, powers of ten.
#: A, C, F, N, T, d and t are missing, because they are more often variables.
_UNIT = (
    r"(?:[numcdkMGT]?(?:m|g|s|l|L|W|Wh|V|J|Hz|Pa|eV|mol)|h|K|kN|[numk]A|[kMGT]i?B|k?cal|[kMB]|bn|"
    r"st|nd|rd|th|am|pm|(?i:usd|eur|gbp|chf|jpy|rs|cts?|mins?|secs?|hrs?|day|wk|mo|yrs?|in|ft|yd|"
    r"mi|oz|lbs?|gal|ha|bar|atm|mph|kph|kmh|rpm|bps|fps|px|pts?|dpi|ppm|pp|rad|deg|db))[23]?"
    r"(?![A-Za-z\d])"
)
_FUNCTION = r"(?<![A-Za-z])(?:ln|log|exp|(?:arc)?(?:sin|cos|tan)|sqrt)"
#: 2x, 5 a, 2(x + 1), n - 1, 2/x: a target with one of these is a formula.
_FORMULA = re.compile(
    rf"\d[)}}{{]?(?:\\[,;: ]|\s(?=\w\W*$))?(?!{_UNIT}|[eE][+-]?\d|x\s*10)"
    r"(?:[A-Za-z]{1,3}(?![A-Za-z])|[A-Za-z]+\(|(?:alpha|beta|theta|lambda|omega)\b)|\d\([a-z]\b|"
    r"(?<![\w\\'])[a-zA-Z]\s*[-+]\s*\d|\d\s*[-+*/]\s*(?![mgshl]\b)[a-z](?!\w)"
)
#: ln(2), 5!, |-2|, x < 2, (-∞, 2): so is a target with one of these.
_MORE_THAN_NUMBER = re.compile(
    r"\d!|[<>≤≥|±∞]|\\(?:infty|pm|[lg]eq?|[lg]t)(?![a-z])|" + _FUNCTION + r"[ (]*\d"
)
#: An asterisk is a product only where it is no markdown: "3*4" and "3 * 4", but not "**4**".
_OPERATOR_BEFORE = re.compile(
    r"(?:[\^/×·√]|[\w)]\*{1,2}|[\d)][ ]\*{1,2}(?=[ ])|[\w)}\]][ \t]*\+|[\d)}\]][ \t]*-|"
    r"\\[a-z]+[ ]*[{(]?|frac.*\}[ ]*\{|\^\{?[-+]|" + _FUNCTION + r"[ ]*\()[ \t]*$"
)
_OPERATOR_AFTER = re.compile(
    r"[ ]\*\*[ ]\d|\*\*\d|\(\d|"
    r"\)?[ \t]*\^(?!\{?\\circ)|"
    r"[ \t]*(?:\*[ ]?(?:[\d(\\]|sqrt|pi|[a-z]\b)|×|·|/[ ]*[\d(\\]|\+|-[ ]*[\d(\\]|"
    r"\\(?:times|cdot|sqrt|pi|frac|div)|√|sqrt|π)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A number found in a text.

    Attributes:
        value: Value as written, without the factor `scale`.
        scale: Factor of the word or sign after the number: 0.01 for %, 10^6 for "million", else 1.
        text: The characters of the number.
        start: Position of these characters in the prepared text.
        in_expression: Whether an operator stands beside the number, so that it is only a part.
    """

    value: Decimal
    scale: Decimal
    text: str
    start: int
    in_expression: bool

    def equals(self, other: "Number", *, abs_tol: float, rel_tol: float) -> bool:
        """Whether both numbers are equal within the larger of the two tolerances.

        Where the scales differ, a %, K, M or B may be ignored. Words always multiply.
        """
        return any(_close(x, y, abs_tol, rel_tol) for x, y in self.readings(other))

    def readings(self, other: "Number") -> list[tuple[Decimal, Decimal]]:
        """Pairs of values that this number and `other` may stand for; see `equals`."""
        if self.scale == other.scale:
            return [(self.value, other.value)]
        mine, theirs = (
            [_CONTEXT.multiply(n.value, n.scale), *([n.value] if _LOOSE.search(n.text) else [])]
            for n in (self, other)
        )
        return list(product(mine, theirs))


def _close(x: Decimal, y: Decimal, abs_tol: float, rel_tol: float) -> bool:
    slack = max(Decimal(abs_tol), _CONTEXT.multiply(Decimal(rel_tol), _CONTEXT.abs(y)))
    gap = _CONTEXT.abs(_CONTEXT.subtract(x, y))
    return bool(gap.is_finite() and gap <= slack)


def prepare(text: str) -> str:
    """`text` with plain numbers (separators, currency, LaTeX fractions), without retracted text."""
    text = _MINUS_WORD.sub(r"\1\2-", settled(plain(_GROUP_SPACE.sub("", text))))
    text = _BEFORE_FACTOR.sub(r" \2\1", _CURRENCY.sub(r"\1", text))
    return _FRAC.sub(r"\1/\2", _FRAC_AFTER_DIGIT.sub(r" \\frac", text))


def numbers_in(text: str) -> Iterator[Number]:
    """Yield the numbers of a prepared text, in order.

    Times (3:45), dates, ranges (5-10), versions (1.2.3) and digits inside words are no numbers.
    Denied numbers ("not 5", "5 is wrong") are left out.
    """
    for match in _NUMBER.finditer(text):
        value = _value(match)
        start = match.start()
        is_pair = match["comma"] and text[:start].endswith(("(", "[", "{"))  # (1,2)
        if value is None or is_pair or is_denied(text, start, match.end()):
            continue
        before = text[:start][-80:]
        if match["sign"] and not _is_sign(match["sign"], before):
            value = -value if match["sign"].startswith("-") else value
            before += match["sign"]
        words = _WORD.findall((match["scale"] or "").replace("per cent", "percent"))
        yield Number(
            value=value,
            scale=prod(
                (_SCALES[word.lower().removesuffix("s")] for word in words), start=Decimal(1)
            ),
            text=match[0].strip(),
            start=start,
            in_expression=bool(
                _OPERATOR_BEFORE.search(before) or _OPERATOR_AFTER.match(text, match.end())
            ),
        )


def _is_sign(sign: str, before: str) -> bool:
    """Whether `sign` belongs to the number; not so in "5 - 3", in "x-3" and as a list marker."""
    stripped = before.rstrip(" \t")
    if not stripped:
        return True
    last = stripped[-1]
    if last == "\n":
        return sign.strip() == sign
    joins = last.isalnum() if stripped == before else last.isdigit()
    return not (joins or last in ")]}")


def _value(match: re.Match[str]) -> Decimal | None:
    if match["under"]:
        value = _CONTEXT.divide(Decimal(match["over"]), Decimal(match["under"]))
        value = _CONTEXT.add(value, Decimal(match["whole"] or 0))
    elif match["european"]:
        value = Decimal(match["european"].replace(".", "").replace(",", "."))
    elif match["comma"]:
        value = Decimal(match["comma"].replace(",", "."))
    else:
        value = Decimal((match["grouped"] or match["point"]).replace(",", ""))
    tens = match["exponent"] or match["tens"] or match["tens_braced"]
    power = match["power"] or match["power_braced"]
    if tens:
        value = _CONTEXT.multiply(value, Decimal(f"1e{tens}"))
    if power:
        value = _CONTEXT.power(value, Decimal(power))
    if match["sign"] and match["sign"].startswith("-"):
        value = -value
    return value if value.is_finite() else None


def is_formula(text: str) -> bool:
    """Whether a target is more than a number: 2x, 3n + 1, ln(2), x < 2."""
    return has_factor(text) or _MORE_THAN_NUMBER.search(prepare(text)) is not None


def has_factor(text: str) -> bool:
    """Whether letters other than units follow a number directly: 2x, 5a, 3n + 1."""
    return _FORMULA.search(prepare(text)) is not None


def whole_number(text: str) -> Number | None:
    """The number of a text with only one, which may have a unit; else, or in a formula, `None`."""
    found = list(numbers_in(prepare(text)))
    if len(found) != 1 or found[0].in_expression or is_formula(text):
        return None
    return found[0]
