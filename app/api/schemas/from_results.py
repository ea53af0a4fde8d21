"""Banks made of recorded results, as JSON."""

from typing import Annotated, Literal, Self

from pydantic import Field

from app.api.schemas.banks import BankName, BankRead, ScorerModel, Visibility
from app.api.schemas.calibrations import CalibrationRead, Model
from app.api.schemas.response_sets import (
    AnswerChoice,
    AnswerChoices,
    AnswerFile,
    ResponseSetRead,
    WhichAnswers,
)
from app.api.schemas.versions import AskedModel, ShortText, UnparsedPolicy
from app.calibration.pipeline.plan import CalibrationPlan
from app.exchange.results.found import Choice
from app.items import JsonObject
from app.records.fields import convert, shallow
from app.records.response_sets import ImportedFile
from app.services.banks.imports import Skipped
from app.services.banks.overviews import BankOverview
from app.services.calibrations.from_results import LEAST_MODELS, BankBegun, BankFromResults
from app.services.responses.imports import ResultsImport, SkippedRows
from app.services.visibility import View
from app.shapes import MAX_LISTED, First, Output, ShownAs, Text, examples

ResultFiles = Annotated[
    list[AnswerFile],
    Field(
        min_length=1,
        max_length=1000,
        fail_fast=True,
        description="Samples of lm-eval with their `results_*.json`, logs of inspect, or output "
        "items of OpenAI Evals. They may be gzipped.",
    ),
]


class FromResultsCreate(WhichAnswers):
    """Recorded results to make a bank from: questions, answers, calibration and version."""

    model_config = examples(
        {
            "name": "sums",
            "files": [
                {
                    "name": "gpt-5/samples_sums_2026-11-20T10-00-00.jsonl",
                    "content": '{"doc_id": 0, "arguments": {"gen_args_0": {"arg_0": "2 + 2 '
                    '=", "arg_1": {"until": []}}}, "target": "4", "resps": [["4"]], '
                    '"exact_match": 1.0}',
                }
            ],
        }
    )

    name: BankName
    files: ResultFiles
    tasks: AnswerChoices = Field(default_factory=list)
    """Tasks to read; `*` is a wildcard."""
    prompts_of: AnswerChoice | None = None
    """Model whose prompts become the questions. Default: for each question the most frequent
    wording."""
    target_after: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    """The right answer is the text after this mark in the recorded answer. Default: `####`, if all
    recorded answers have it."""
    default_scorer: ScorerModel | None = None
    """Scorer of live answers. Default: one that reproduces the recorded scores."""
    unparsed_policy: UnparsedPolicy | None = None
    model: Model = "2pl"
    report_card: bool = True
    """Cross-validate: test held-out models on banks calibrated without them."""
    publish: bool = True
    """Calibrate and make a version. False: only read the results."""
    questions_only: bool = False
    """Keep only the questions, for example if a dummy model wrote the answers."""
    least_models: Annotated[int, Field(ge=3, le=10_000)] = LEAST_MODELS
    """Minimum number of models for a calibration."""
    licence: ShortText | None = None
    visibility: Visibility = "open"

    def to_domain(self) -> BankFromResults:
        """The same for the service.

        Raises:
            InvalidInputError: A content that is not base64.
        """
        return convert(
            BankFromResults,
            self,
            results=ResultsImport(
                files=[file.to_domain(position) for position, file in enumerate(self.files)],
                choices=self.choices(
                    tasks=tuple(self.tasks), unparsed_policy=self.unparsed_policy, take_first=True
                ),
                target_after=self.target_after,
                prompts_of=self.prompts_of,
            ),
            scorer=None if self.default_scorer is None else self.default_scorer.to_domain(),
            plan=CalibrationPlan(model=self.model, report_card=self.report_card),
        )


class AgreementRead(Output):
    """Agreement of a scorer with recorded scores, separately for right and wrong answers."""

    right: float | None
    """Share of the recorded right answers that it scores as right."""
    n_right: int
    wrong: float | None
    """Share of the recorded wrong answers that it scores as wrong."""
    n_wrong: int
    words: str


class MarkingRead(Output):
    """The scorer of live answers, and its agreement with the recorded scores."""

    scorer: str
    params: JsonObject
    agreement: AgreementRead | None
    """Agreement on a random sample of recorded answers; null if likelihoods of options are
    compared."""
    n_differing: int
    """Number of sampled answers that it scores differently. The calibration uses their recorded
    scores."""
    differing: First[str] = Field(description=f"Their items, the first {MAX_LISTED}.")


class FromResultsRead(Output):
    """What was read and stored, and the calibration that makes the version."""

    object: Literal["bank_from_results"] = "bank_from_results"
    bank: BankRead
    questions: int
    """Number of items added to the bank."""
    known_questions: int
    """Number of items that the bank had already."""
    response_set: ResponseSetRead | None
    """Null with `questions_only`."""
    files: First[ImportedFile]
    n_files: int
    """Number of files with answers."""
    models: int
    incomplete_models: int
    """Number of models without answers to some questions."""
    asked: Annotated[JsonObject, ShownAs(AskedModel)]
    """How the answers were obtained."""
    marking: MarkingRead
    choices: list[Choice]
    left_out: list[Skipped]
    skipped: list[SkippedRows]
    calibration: CalibrationRead | None
    """Calibration to poll; once completed, sessions can use its `bank_version_id`."""
    stopped: str | None
    """Why nothing is calibrated, and what is needed; null if a calibration began."""

    @classmethod
    def of(cls, begun: BankBegun, view: View) -> Self:
        """The outgoing shape."""
        marking = begun.marking
        overview = BankOverview(begun.bank, begun.items.rows_read, None)
        return cls.read(
            {
                **shallow(begun),
                "bank": BankRead.of(overview, view),
                "questions": begun.items.accepted,
                "known_questions": begun.items.rows_read - begun.items.accepted,
                "n_files": sum(file["rows_read"] > 0 for file in begun.files),
                "models": begun.n_models,
                "incomplete_models": begun.n_incomplete,
                "marking": {
                    "scorer": marking.scorer.name,
                    "params": dict(marking.scorer.params),
                    "agreement": marking.agreement,
                    "n_differing": len(marking.differing),
                    "differing": marking.differing,
                },
                "left_out": [
                    {"reason": reason, "count": len(keys), "keys": keys[:MAX_LISTED]}
                    for reason, keys in begun.left_out.items()
                ],
                "calibration": begun.calibration and CalibrationRead.read(begun.calibration),
            }
        )
