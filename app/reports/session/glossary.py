"""How to read the page: plain definitions of the words it uses."""

from app.reports.markup import Markup, el, join
from app.reports.parts import section
from app.reports.session.facts import SessionReport


def glossary(report: SessionReport) -> Markup:
    """The last section; words that this page does not use are left out."""
    several, continuous = bool(report.abilities), report.identity.response_model == "continuous"
    questions = "calibrated questions" if report.identity.n_uncalibrated else "questions"
    score = (
        f"The mean score (0 to 100\u00a0%) that the model would get on all {questions}"
        if continuous
        else f"The share of all {questions} that the model would get right"
    )
    method = (
        "Predicted from its answers by how scores went together in the models that the bank was "
        "calibrated on."
        if report.score is not None and report.score.method == "score-model"
        else "Answers that were given count as they are; the rest is expected from the ability."
    )
    terms = [
        ("Predicted score", f"{score}, had it been asked all of them. {method}"),
        (
            "95\u00a0% interval",
            "Where the true value lies for 19 of 20 tests like this one. Two results whose "
            "intervals overlap widely may well be equal: do not rank models by the middle alone.",
        ),
        (
            "Adaptive test",
            "A test that asks next the question that tells most by what is known by then. That is "
            "why few questions suffice, and why the share of right answers among those asked says "
            "little: good models get harder questions.",
        ),
        (
            "Bank, calibration",
            "The questions with what is known of each: how hard it is and how well it tells models "
            "apart, found from the recorded answers of many models.",
        ),
        (
            "Ability, theta",
            "How able the model is, on the bank's own scale. 0 is about the middle of the models "
            "it was calibrated on; +1 is better than about 84\u00a0% of them, −1 than about 16"
            "\u00a0%."
            if not report.identity.provisional
            else "How able the model is, on the bank's own scale; 0 is its middle.",
        ),
        (
            "Standard error",
            "How uncertain an ability is: the true one is within about two standard errors, 19 "
            "times out of 20.",
        ),
        ("Task", "The questions that share a tag."),
    ]
    if several:
        terms.append(
            (
                "Stronger or weaker than expected",
                "Models that are good overall are mostly good at every task. This says where the "
                "model differs from those that are as good overall.",
            )
        )
    terms.append(
        (
            "Left out",
            "A call that ended in an error, a refusal, or an answer that could not be read is "
            "counted beside the score; it is not a wrong answer. Answers that could not be read "
            "do count as wrong on banks that were calibrated like that."
            if report.identity.unparsed_policy == "missing"
            else "A call that ended in an error or a refusal is counted beside the score; it is "
            "not a wrong answer. Answers that could not be read count as wrong here.",
        )
    )
    pairs = [join(el("dt", term), el("dd", meaning)) for term, meaning in terms]
    return section("How to read this", el("dl", *pairs))
