"""Tests of examinees that the bank had not seen: how well they did, and whether intervals held."""

from collections.abc import Callable, Mapping

from app.reports.markup import Markup, Node, el
from app.reports.parts import NOT_COMPUTED, number, section, table
from app.reports.version.facts import SimulatedTest, SimulatedTests, VersionReport
from app.reports.version.words import correction_sentence, shift_words

#: Begins the name of tests whose questions were chosen for the predicted score.
FOR_SCORE = "score_"


def _held(row: SimulatedTest, name: str) -> str:
    """Share of intervals that held, and that of the model alone in brackets."""
    true, raw = row.figures.get(name), row.figures.get(f"{name}_raw")
    if true is None:
        return "-"
    alone = "" if raw is None else f" ({100 * raw:.0f})"
    return f"{100 * true:.0f}\u00a0%{alone}"


def _design(row: SimulatedTest) -> str:
    if row.design in ("score", "ability"):
        return f"test for the {row.design}"
    if row.design == "random":
        return "random questions"
    if row.design.startswith(FOR_SCORE):
        return f"{row.design.removeprefix(FOR_SCORE)} questions for the score"
    return row.design if row.se_target is None else f"until SE\u00a0{row.se_target:g}"


_COLUMNS: tuple[tuple[str, Callable[[SimulatedTest], str]], ...] = (
    ("questions", lambda row: number(row.figures.get("items_mean"), 1)),
    ("at most", lambda row: number(row.figures.get("items_max"), 0)),
    ("error of ability", lambda row: number(row.figures.get("theta_mae"), 3)),
    ("intervals that hold", lambda row: _held(row, "coverage95")),
    ("error of score", lambda row: number(row.figures.get("accuracy_mae"), 3)),
    ("score intervals that hold", lambda row: _held(row, "accuracy_coverage95")),
    ("most used question", lambda row: number(row.figures.get("exposure_max"), 2)),
    ("overlap", lambda row: number(row.figures.get("overlap"), 2)),
    ("saving", lambda row: number(_saving(row), 1)),
)


def _saving(row: SimulatedTest) -> float | None:
    ies = row.figures.get("theta_ies")
    return 1.0 / ies if ies else None


def simulated_tests(report: VersionReport) -> Markup:
    """The section about tests of held-out examinees, and about intervals."""
    card = report.simulated
    parts: list[Node] = [
        el(
            "p",
            "Models that took no part in the calibration are tested again on their own recorded "
            "answers, and the result of the short test is compared with that of all questions.",
        )
    ]
    if card is None:
        parts.append(el("p", NOT_COMPUTED))
    else:
        heads = ["test", *(head for head, _ in _COLUMNS)]
        rows: list[list[Node]] = [
            [_design(row), *(shown(row) for _, shown in _COLUMNS)] for row in card.rows
        ]
        parts += [
            table(f"Simulated tests of {card.n_examinees:,} models", heads, rows),
            el(
                "p",
                "Error: mean distance from the result of all questions. Intervals that hold: of "
                "100 intervals of 95\u00a0%, how many held that result, with the correction below "
                "and (in brackets) as the model alone gives them. Overlap: share of a test's "
                "questions that another test asks, too. Saving: how many times the work of 100 "
                "random questions it saves for the same error.",
                class_="note",
            ),
        ]
        parts += _tasks(card)
        parts += _shifts(card)
    parts += [el("h3", "How far intervals can be trusted"), el("p", correction_sentence(report))]
    return section("Tests tried on models that were held out", *parts)


_SHIFT_COLUMNS = tuple(
    (head, shown)
    for head, shown in _COLUMNS
    if head not in ("at most", "most used question", "overlap", "saving")
)


def _shifts(card: SimulatedTests) -> list[Node]:
    """Tests of models unlike those learned from."""
    if not card.shifts:
        return []
    heads = ["learned from", "tested", "test", *(head for head, _ in _SHIFT_COLUMNS)]
    rows: list[list[Node]] = [
        [
            f"{shift_words(shift.hold_out)[0]} ({shift.n_learned:,})",
            f"{shift_words(shift.hold_out)[1]} ({shift.n_examinees:,})",
            _design(row),
            *(shown(row) for _, shown in _SHIFT_COLUMNS),
        ]
        for shift in card.shifts
        for row in shift.rows
    ]
    found: list[Node] = [
        el("h3", "Models unlike those learned from"),
        el(
            "p",
            "The model that is measured tomorrow is seldom like those of yesterday: it is newer, "
            "and mostly stronger. Here nothing was learned from the models that were tested.",
        ),
    ]
    if rows:
        found.append(table("Simulated tests of models unlike those learned from", heads, rows))
    for shift in card.shifts:
        learned, tested = shift_words(shift.hold_out)
        if shift.reason is not None:
            found.append(el("p", f"{learned} to {tested}: {shift.reason}", class_="note"))
        elif shift.families:
            found.append(el("p", f"Families held out: {', '.join(shift.families)}.", class_="note"))
    return found


def _tasks(card: SimulatedTests) -> list[Node]:
    """The predicted scores of the tasks, where the bank measures several abilities."""
    tags = list(dict.fromkeys(tag for row in card.rows for tag in row.tasks))
    if not tags:
        return []
    rows: list[list[Node]] = [
        [_design(row), *(_task(row.tasks.get(tag)) for tag in tags)] for row in card.rows
    ]
    return [
        table("Predicted scores of the tasks", ["test", *tags], rows),
        el(
            "p",
            "Error of the predicted score of all questions of a task, be they asked or not, and "
            "in brackets how many of 100 intervals of 95\u00a0% held it.",
            class_="note",
        ),
    ]


def _task(figures: Mapping[str, float] | None) -> str:
    if figures is None:
        return "-"
    return f"{number(figures['mae'], 3)} ({100 * figures['coverage95']:.0f})"
