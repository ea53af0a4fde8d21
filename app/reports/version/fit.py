"""How far the recorded answers agree with the model, as a whole and question by question."""

from app.reports.markup import Markup, Node, el
from app.reports.parts import NOT_COMPUTED, capped, number, section, table, with_error
from app.reports.version.facts import CalibrationFacts
from app.reports.version.words import FIT_WORDS


def fit_of_model(facts: CalibrationFacts | None) -> Markup:
    """The section about how far the answers agree with the model."""
    if facts is None:
        return section(
            "Does the model fit?",
            el("p", NOT_COMPUTED, " The parameters were imported, without the answers."),
        )
    fit = facts.fit
    verdict = str(fit.get("verdict") or "unknown")
    rows: list[list[Node]] = [
        ["Overall", _word(verdict), FIT_WORDS.get(verdict, "")],
        [
            "RMSEA (misfit per degree of freedom)",
            number(fit.get("rmsea"), 3),
            f"90\u00a0% interval {number(fit.get('rmsea_lo'), 3)} to "
            f"{number(fit.get('rmsea_hi'), 3)}, from {fit.get('m2_items')} questions"
            if fit.get("rmsea") is not None
            else str(fit.get("m2_missing") or ""),
        ],
        [
            "SRMSR (difference of correlations)",
            number(fit.get("srmsr"), 3),
            "how far the questions go together otherwise than the model says",
        ],
        [
            "Questions whose answers follow their curve",
            ", ".join(f"{n:,} {name}" for name, n in facts.item_verdicts.items()) or "-",
            "RMSEA of S-X2 of each question, in the same words",
        ],
        [
            "Pairs that share more than ability",
            "-" if facts.n_dependent_pairs is None else f"{facts.n_dependent_pairs:,}",
            "Q3 above its mean by 0.2; such questions count partly double"
            + (
                ". The strongest: "
                + ", ".join(f"{a} and {b} ({q:.2f})" for a, b, q in facts.dependent_pairs[:3])
                if facts.dependent_pairs
                else ""
            ),
        ],
    ]
    if fit.get("variance_r2") is not None:
        scatter = "how far scores scatter as the model says: 0.9 good, 0.7 acceptable, 0.4 marginal"
        rows.insert(1, ["Scatter (R2 of the variance)", number(fit["variance_r2"], 3), scatter])
    parts: list[Node] = [
        el(
            "p",
            "All numbers rest on a model of how answers come about. These figures tell how far the "
            "recorded answers agree with it, by the worse of RMSEA and SRMSR: below 0.05 ",
            _word("good"),
            ", below 0.08 ",
            _word("acceptable"),
            ", below 0.10 ",
            _word("marginal"),
            ", else ",
            _word("poor"),
            ".",
        ),
        table("Fit of the model", ["what", "value", "meaning"], rows),
    ]
    parts += [el("p", el("b", "Note: "), warning) for warning in facts.warnings]
    if facts.worst_items:
        shown = facts.worst_items
        judged = sum(facts.item_verdicts.values())
        parts += [
            el("h3", "Questions that follow their curve least"),
            table(
                "Fit of single questions, the worst first",
                ["question", "discrimination a", "difficulty b", "RMSEA", "p", "fit"],
                [
                    [
                        item.key,
                        with_error(item.a, item.se_a),
                        with_error(item.b, item.se_b),
                        number(item.rmsea, 3),
                        "< 0.001" if item.p_value < 0.001 else number(item.p_value, 3),
                        _word(item.verdict),
                    ]
                    for item in shown
                ],
                names=True,
            ),
            capped(len(shown), judged, "questions that could be judged"),
        ]
    if facts.comparison:
        parts += [
            el("h3", "Other models on the same answers"),
            el("p", "The lower AIC and BIC, the better the balance of fit and simplicity."),
            table(
                "Comparison of models",
                ["model", "log-likelihood", "parameters", "AIC", "BIC"],
                [
                    [
                        str(other.get("model")),
                        number(other.get("log_likelihood"), 1),
                        number(other.get("n_parameters"), 0),
                        number(other.get("aic"), 1),
                        number(other.get("bic"), 1),
                    ]
                    for other in facts.comparison
                ],
            ),
        ]
    return section("Does the model fit?", *parts)


def _word(verdict: str) -> Markup:
    """A verdict, coloured."""
    return el("span", verdict, class_=f"word {verdict if verdict.isalpha() else 'unknown'}")
