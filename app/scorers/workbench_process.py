"""The program of a workbench process: jobs as JSON lines in, results as JSON lines out.

Run by path, so that it starts in a moment: what a task needs is imported with its first job. Each
job is answered twice: `{"ready": true}` once its libraries are loaded, then its result. A job that
outlives its time is ended by the parent; if the parent is gone by then, by the kernel's timer.
"""

import contextlib
import gc
import json
import os
import re
import resource
import signal
import string
import sys
import warnings
from collections.abc import Callable
from typing import Any

Job = dict[str, Any]

#: Of four such processes; the algebra library and all scorers take a third of it.
MEMORY_LIMIT_BYTES = 640 << 20
#: Who asks for anything else is answered first.
NICENESS = 5
#: The parent kills first; this much later the kernel does, in case there is no parent any more.
GRACE_S = 1.0


def load_search() -> Callable[[Job], Job]:
    """Regular expressions: the last match of `pattern` in each of `texts`."""

    def search(job: Job) -> Job:
        compiled = _compiled(job)

        def last(text: str) -> str | None:
            found = None
            for match in compiled.finditer(text):
                found = match
            return None if found is None else found[job["group"]] or ""

        return {"found": [last(text) for text in job["texts"]]}

    return search


def load_compile() -> Callable[[Job], Job]:
    """Regular expressions: the groups that `pattern` has, or what is wrong with it."""

    def compile_pattern(job: Job) -> Job:
        try:
            compiled = _compiled(job)
        except (re.error, OverflowError, RecursionError) as exc:
            return {"fault": str(exc)}
        return {"groups": compiled.groups, "names": list(compiled.groupindex)}

    return compile_pattern


def load_extract() -> Callable[[Job], Job]:
    """What `pattern` finds in each of `texts`, and whether it is one of `targets`."""

    def extract(job: Job) -> Job:
        pattern = None if job["pattern"] is None else re.compile(job["pattern"])
        removed = [re.compile(each) for each in job["remove"]]
        dropped = "" if not job["ignore_punctuation"] else string.punctuation
        table = str.maketrans("", "", dropped + (string.digits if job["ignore_numbers"] else ""))

        def stated(text: str) -> str | None:
            if pattern is None:
                return text.strip()
            found = pattern.findall(text)
            if not -len(found) <= job["match"] < len(found):
                return None
            match = found[job["match"]]
            if isinstance(match, tuple):
                match = next(filter(None, match), None)
            return None if match is None else match.strip()

        def bare(text: str) -> str:
            for each in removed:
                text = each.sub("", text)
            return (text.lower() if job["ignore_case"] else text).translate(table)

        accepted = {bare(target) for target in job["targets"]}
        found = [stated(text) for text in job["texts"]]
        return {
            "stated": found,
            "right": [text is not None and bare(text) in accepted for text in found],
        }

    return extract


def _compiled(job: Job) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "[[" may change its meaning in some later Python
        return re.compile(job["pattern"], re.IGNORECASE if job["ignore_case"] else 0)


def load_compare() -> Callable[[Job], Job]:
    """Symbolic equality of `answer` and any of `targets`, and the values of both."""
    import sympy
    from math_verify import (
        LatexExtractionConfig,
        parse,
        verify,
    )

    def read(text: str) -> list[Any]:
        # The library's own timeout is SIGALRM with a Python handler, which a power tower
        # computed in C never lets run.
        parsed: list[Any] = parse(
            f"${_latex(text)}$",
            extraction_config=[LatexExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,
        )
        return parsed

    def value(parsed: list[Any]) -> str | None:
        expression = parsed[0] if parsed else None
        if not isinstance(expression, sympy.Expr) or expression.free_symbols:
            return None
        number = sympy.N(expression, 30)
        return str(number) if number.is_Float or number.is_Integer else None

    def compare(job: Job) -> Job:
        answer = read(job["answer"])
        if not answer:
            return {"readable": False}
        targets = [read(target) for target in job["targets"]]
        return {
            "readable": True,
            "equal": any(bool(t) and verify(t, answer, timeout_seconds=None) for t in targets),
            "answer": value(answer),
            "targets": [value(t) for t in targets],
        }

    # The parser builds its tables on first use: that is start-up, not the first job's time.
    compare({"answer": r"\frac{1}{2}", "targets": ["0.5"]})
    return compare


_TOWER = re.compile(r"\w+(?:\s*\^\s*\w+){2,}")


def _latex(text: str) -> str:
    """`text` in the LaTeX that math-verify reads; plain notation such as sqrt(2) is translated."""
    text = text.strip().strip("$").strip()
    text = re.sub(r"\\[()\[\]]", "", text).replace("**", "^").replace("π", r"\pi ")
    text = re.sub(r"(?<![\\A-Za-z])sqrt\s*\(([^()]*)\)", r"\\sqrt{\1}", text)
    text = re.sub(r"√\s*(?:\(([^()]*)\)|(\d+))", r"\\sqrt{\1\2}", text)
    text = re.sub(r"(?<![\\A-Za-z])pi\b", r"\\pi ", text)
    # The library reads 2^3^2 from the left; as everywhere else it means 2^(3^2).
    text = _TOWER.sub(lambda m: re.sub(r"\s*\^\s*", "^{", m[0]) + "}" * m[0].count("^"), text)
    return text.replace("*", r" \cdot ").replace("×", r" \times ").replace("·", r" \cdot ")


def _load_scorers() -> Any:
    """The scorers themselves, whose work is done right here from now on."""
    from app.scorers import remote, turns

    turns.work_here(_Here())
    return remote


class _Here:
    """Does the jobs of scorers in this process."""

    async def run(self, task: str, *, timeout_s: float, **arguments: object) -> Job:
        return self.ask(task, timeout_s=timeout_s, **arguments)

    def ask(self, task: str, *, timeout_s: float, **arguments: object) -> Job:  # noqa: ARG002  the whole job's holds
        return work({"task": task, **arguments})


LOADERS: dict[str, Callable[[], Callable[[Job], Job]]] = {
    "search": load_search,
    "compile": load_compile,
    "extract": load_extract,
    "compare": load_compare,
    "mark": lambda: _load_scorers().mark,
    "examples": lambda: _load_scorers().examples,
    "check": lambda: _load_scorers().check,
}
_tasks: dict[str, Callable[[Job], Job]] = {}


def load(name: str) -> None:
    """Import what a task needs."""
    if name not in _tasks:
        gc.disable()  # what is loaded stays: looking for garbage in it takes a fifth of the time
        _tasks[name] = LOADERS[name]()
        gc.freeze()
        gc.enable()


def work(job: Job) -> Job:
    """The result of a job."""
    load(job["task"])
    return _tasks[job["task"]](job)


def main() -> None:
    """Work until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; parent decides
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    with contextlib.suppress(OSError, ValueError):  # not every system lets it be limited
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not look like a reply
    for line in sys.stdin:
        job = json.loads(line)
        load(job["task"])
        print(json.dumps({"ready": True}), file=replies, flush=True)
        signal.setitimer(signal.ITIMER_REAL, job["timeout_s"] + GRACE_S)
        try:
            result = work(job)
        except Exception as exc:  # noqa: BLE001  any library fault is a result, not an end
            result = {"failed": f"{type(exc).__name__}: {exc}"[:200]}
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(result), file=replies, flush=True)


if __name__ == "__main__":
    main()
