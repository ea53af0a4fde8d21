"""What was asked, what became of it and what it took, as sections of the page of a test."""

from app.items import Outcome
from app.reports.figures import counted_wrong, dollars, unmarked
from app.reports.markup import Markup, Node, el, join
from app.reports.parts import capped, count, percent, section, signed, table
from app.reports.session.cautions import FAILURE_WORDS
from app.reports.session.facts import AskedItem, SessionReport
from app.reports.session.words import OUTCOME_NAMES, STOP_WORDS, duration


def answer_section(report: SessionReport) -> Markup:
    """The section about outcomes and what they cost."""
    progress, usage = report.figures["progress"], report.figures["usage"]
    outcomes, failed = report.figures["outcomes"], unmarked(report.figures)
    rows: list[list[Node]] = [
        ["marked", f"{outcomes[Outcome.SCORED]:,}", "enter the score"],
    ]
    for name, n in failed.items():
        rows.append([OUTCOME_NAMES[name], f"{n:,}", f"left out: {FAILURE_WORDS[name]}"])
    if wrong := counted_wrong(report.figures):
        rows.append([OUTCOME_NAMES[Outcome.UNPARSED], f"{wrong:,}", "count as wrong"])
    if progress["in_flight"]:
        rows.append(["awaited", f"{progress['in_flight']:,}", "asked, not answered yet"])
    pretest = report.figures["pretest"]
    if pretest and pretest["items"]:
        rows.append(
            [
                "tried out",
                f"{pretest['items']:,}",
                "new questions asked beside the test, to calibrate them later; they do not count",
            ]
        )
    trust = (
        "A call that failed says nothing about what the model knows, so that it is neither a wrong "
        "answer nor a right one. The score is about the answers that could be marked: it tells "
        "about the model in use as far as these failures are rare there."
        if failed
        else "No answer was left out: the score stands on all that was asked."
    )
    effort: list[list[Node]] = [
        ["Calls", f"{usage['calls']:,}"],
        ["Tokens", f"{usage['tokens_in']:,} read, {usage['tokens_out']:,} written"],
        ["Cost", "price unknown" if usage["usd"] is None else dollars(usage["usd"])],
        ["Time", duration(usage)],
    ]
    judge = usage.get("judge")
    if judge:
        paid = "price unknown" if judge["usd"] is None else dollars(judge["usd"])
        tokens = judge["tokens_in"] + judge["tokens_out"]
        effort.append(
            ["Marking", f"{count(judge['calls'], 'call')} of a judge, {tokens:,} tokens, {paid}"]
        )
    if report.stop_reason is not None:
        stopped = STOP_WORDS.get(report.stop_reason, report.stop_reason)
        effort.append(["Stopped because", join(stopped, _detail(report.stop_detail))])
    asked = f"{progress['items'] + progress['in_flight']:,} of {report.identity.n_items:,}"
    return section(
        "What was asked, and what became of it",
        el("p", f"{asked} questions were asked. ", trust if progress["items"] else ""),
        table("Answers by what became of them", ["answers", "number", "meaning"], rows),
        table("What it took", ["what", "value"], effort),
    )


def _detail(text: str | None) -> Markup | None:
    return None if not text else el("div", text, class_="note")


def item_section(report: SessionReport) -> Markup:
    """The section with a row for each question."""
    title = "Question by question"
    if not report.items:
        return section(title, el("p", "Nothing has been asked."))
    texts = any(item.question for item in report.items)
    answers = any(item.answer for item in report.items)
    heads = [
        "question",
        "task",
        *(["text"] if texts else []),
        *(["answer"] if answers else []),
        "result",
        "expected",
        "ability after it",
    ]
    rows = [_row(item, texts=texts, answers=answers) for item in report.items]
    return section(
        title,
        el(
            "p",
            "In the order in which they were asked. “Expected” is the mean score of models of the "
            "ability found here: a miss at 80\u00a0% or a hit at 20\u00a0% is a surprise.",
        ),
        el(
            "details",
            el("summary", f"Show {count(len(rows), 'question')}"),
            table("Questions asked", heads, rows, names=True),
        ),
        capped(len(report.items), report.n_asked, "questions"),
    )


def _row(item: AskedItem, *, texts: bool, answers: bool) -> list[Node]:
    after = (
        "-"
        if item.theta is None or item.pretest
        else (signed(item.theta, 2) + ("" if item.se is None else f" ± {item.se:.2f}"))
    )
    return [
        f"{item.step}. {item.item_id}",
        ", ".join(item.tags) or "-",
        *([el("div", item.question or "-", class_="text")] if texts else []),
        *([el("div", item.answer or "-", class_="text")] if answers else []),
        _result(item),
        "-" if item.expected is None else percent(item.expected),
        after,
    ]


def _result(item: AskedItem) -> Node:
    if item.outcome is None:
        return "awaited"
    tried = " (tried out, does not count)" if item.pretest else ""
    if item.score is None:
        reason = None if item.reason is None else el("div", item.reason, class_="note")
        return join(f"{OUTCOME_NAMES[item.outcome]}, left out{tried}", reason)
    word = {0.0: "wrong", 1.0: "right"}.get(item.score, f"score {item.score:.2f}")
    return f"{word}{tried}"
