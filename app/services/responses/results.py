"""Recorded results read as answers and as the questions behind them."""

from dataclasses import dataclass

from app.errors import FileFormatError, InvalidInputError
from app.exchange.response_files import ResponseFormat, detect
from app.exchange.results.build import items_of
from app.exchange.results.found import Found
from app.exchange.results.questions import Questions
from app.items import Outcome
from app.services.responses.imports import AnswerImport, Draft, read_draft

#: Formats that say what was asked.
_TOLD = (ResponseFormat.LM_EVAL, ResponseFormat.INSPECT, ResponseFormat.OPENAI_EVALS)
_NAMED = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsImport:
    """Recorded results that are to become a bank.

    Attributes:
        answers: The files, and what they do not settle by themselves.
        target_after: The right answer is what follows this mark in the recorded one.
        prompts_of: Examinee whose prompts are taken; None: of each item those of most.
        numbered: Items are named by their number in the data set, and not by the hash of their
            text, which whoever knows a question could try answers against.
    """

    answers: AnswerImport
    target_after: str | None = None
    prompts_of: str | None = None
    numbered: bool = False


def read_results(request: ResultsImport) -> tuple[Draft, Found]:
    """The answers of some files, and the items that they are to; others are left out.

    Raises:
        FileFormatError: A file that cannot be read, or nothing in it that can be asked again.
        InvalidInputError: Nobody of the name whose prompts are wanted.
    """
    _require_questions(request.answers)
    questions = Questions(prompts_of=request.prompts_of)
    draft = read_draft(request.answers, questions.saw)
    if request.prompts_of is not None and request.prompts_of not in draft.examinees:
        named = ", ".join(draft.examinees[:5])
        raise InvalidInputError(
            f"Expected prompts of one of the {len(draft.examinees)} models ({named}, ...), got "
            f"{request.prompts_of!r}."
        )
    _require_marked(questions, draft)
    found = items_of(questions, draft.other_filters, target_after=request.target_after)
    draft.keep({item["key"] for item in found.items})
    if not request.numbered:
        return draft, found
    names = questions.numbers()
    draft.columns = {names[key]: column for key, column in draft.columns.items()}
    return draft, found.renamed(names)


def _require_questions(answers: AnswerImport) -> None:
    """See to it that one of the files says what was asked, before others are taken for tables."""
    if not any((answers.file_format or detect(file)) in _TOLD for file in answers.files):
        names = ", ".join(file.name for file in answers.files[:_NAMED] if file.asked_for)
        raise FileFormatError(
            f"{names or 'The files'}: expected results that say what was asked (samples of "
            "lm-eval, logs of inspect, output items of OpenAI Evals), found none: a bank needs its "
            "questions. Import the answers by `sextant response-sets import`, and the questions by "
            "`sextant banks import`."
        )


def _require_marked(questions: Questions, draft: Draft) -> None:
    """See to it that files which say what was asked have an answer that was marked.

    Raises:
        FileFormatError: None has, as in logs of runs that failed.
    """
    n_rows = sum(file.rows_read for file in draft.files if file.file_format in _TOLD)
    if questions.items or questions.unusable or not n_rows:
        return
    errors = sum(sheet.counts()[Outcome.ERROR.value] for sheet in draft.sheets.values())
    reasons = [f"{errors} ended in an error"] if errors else []
    reasons += [f"{s.count} {s.reason}, first {s.places[0]}" for s in draft.skipped()]
    raise FileFormatError(
        f"None of the {n_rows} recorded answers was scored ({'; '.join(reasons)}): questions are "
        "made of runs that got as far as scores. Have the tool finish the run (`inspect "
        "eval-retry LOG`), or leave its files out."
    )
