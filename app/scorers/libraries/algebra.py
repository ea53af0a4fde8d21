"""Symbolic equality. Its library takes seconds to import, so only child processes import it."""

import re
from typing import Any

import sympy
from math_verify import LatexExtractionConfig, parse, verify

_TOWER = re.compile(r"\w+(?:\s*\^\s*\w+){2,}")


def compare(answer: str, targets: list[str]) -> tuple[bool, str | None, list[str | None]] | None:
    """Symbolic equality of `answer` and any of `targets`, and the numeric values of both.

    The result is None if the answer cannot be parsed.
    """
    read = _parsed(answer)
    if not read:
        return None
    wanted = [_parsed(target) for target in targets]
    equal = any(bool(t) and verify(t, read, timeout_seconds=None) for t in wanted)
    return equal, _value(read), [_value(t) for t in wanted]


def _parsed(text: str) -> list[Any]:
    # The library's own timeout is useless: it is SIGALRM with a Python handler, which never runs
    # while a power tower is computed in C.
    parsed: list[Any] = parse(
        f"${_latex(text)}$",
        extraction_config=[LatexExtractionConfig()],
        fallback_mode="no_fallback",
        parsing_timeout=None,
    )
    return parsed


def _value(parsed: list[Any]) -> str | None:
    expression = parsed[0] if parsed else None
    if not isinstance(expression, sympy.Expr) or expression.free_symbols:
        return None
    number = sympy.N(expression, 30)
    return str(number) if number.is_Float or number.is_Integer else None


def _latex(text: str) -> str:
    """`text` as LaTeX that math-verify reads; plain notation such as sqrt(2) is translated."""
    text = text.strip().strip("$").strip()
    text = re.sub(r"\\[()\[\]]", "", text).replace("**", "^")
    text = re.sub(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(?:\(([^()]*)\)|(\d+))", r"\\sqrt{\1\2}", text)
    text = re.sub(r"(?<![\\A-Za-z])(pi|ln|log|exp|sin|cos|tan)(?![A-Za-z])", r"\\\1 ", text)
    # The library reads 2^3^2 from the left, but elsewhere this always means 2^(3^2).
    text = _TOWER.sub(lambda m: re.sub(r"\s*\^\s*", "^{", m[0]) + "}" * m[0].count("^"), text)
    return text.replace("*", r" \cdot ").replace("·", r" \cdot ")


# The parser builds its tables on first use: do so once, before children are forked.
compare(r"\frac{1}{2}", ["0.5"])
