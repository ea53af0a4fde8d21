"""Response sets and their imports as JSON."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from app.api.schemas.versions import LongText, UnparsedPolicy
from app.exchange.response_files import ResponseFormat
from app.exchange.results.recorded import Choices, SourceFile
from app.items import JsonObject, Outcome
from app.records.figures import Outcomes
from app.records.response_sets import ImportedFile
from app.services.responses.imports import AnswerImport, SkippedRows
from app.shapes import (
    MAX_LISTED,
    First,
    Input,
    Metadata,
    Output,
    OwnedRead,
    SentContent,
    Text,
    examples,
)
from app.validation import FILE_NAME, NAME_IN_URL

SetName = Annotated[
    str,
    StringConstraints(min_length=1, max_length=200, pattern=NAME_IN_URL),
    Field(description="Unique name. It is part of URLs, so it contains no `/` or `:`."),
]
AnswerChoice = Annotated[Text, StringConstraints(min_length=1, max_length=200)]
AnswerChoices = Annotated[list[AnswerChoice], Field(max_length=20)]


class ResponseSetCreate(Input):
    """A new, empty response set."""

    model_config = examples({"name": "arc-2026", "description": "ARC, all models."})

    name: SetName
    description: LongText = ""
    metadata: Metadata = Field(default_factory=dict)


OutcomeCounts = Annotated[
    Outcomes,
    BeforeValidator(lambda counts: {one.value: counts.get(one, 0) for one in Outcome}),
]


class ResponseSetRead(OwnedRead):
    """A stored response set: examinees, items and their answers."""

    id: str
    object: Literal["response_set"] = "response_set"
    name: str
    description: str
    metadata: dict[str, str]
    n_examinees: int
    n_items: int
    n_answers: int
    """Number of answers with a score."""
    density: float | None
    """Answers as a share of examinees times items."""
    outcomes: OutcomeCounts
    unparsed_policy: str | None
    """How unparseable answers counted: `wrong`, `missing`; null: unknown or mixed."""
    imports: list[JsonObject]
    """Origin of the answers: one entry per import."""
    revision: int
    created_at: datetime
    updated_at: datetime
    """Time of the last new answer or item."""


class TakenAnswers(Output):
    """What was added to a response set."""

    response_set: ResponseSetRead
    accepted: int
    new_examinees: int
    new_items: int
    outcomes: OutcomeCounts
    """Change of the numbers of answers; negative if scored ones replaced others."""


class AnswerFile(SentContent):
    """A file inside a JSON body, as text or in base64."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=500, pattern=FILE_NAME)]
    """Name of the file, for error messages. Folder and name may tell the task and the model, as in
    `gpt-5/samples_gsm8k_2026-11-20T10-00-00.jsonl`."""

    def to_domain(self, position: int) -> SourceFile:
        """The same for the service.

        Raises:
            InvalidInputError: Not base64.
        """
        return SourceFile.of_bytes(self.name, self.in_bytes(f"/files/{position}"))


class WhichAnswers(Input):
    """What to read from files of recorded answers."""

    filters: AnswerChoices = Field(default_factory=list)
    """lm-eval filters to read."""
    metrics: AnswerChoices = Field(default_factory=list)
    """Metrics to read as the score; of several, the first that a row has."""
    scorers: AnswerChoices = Field(default_factory=list)
    """inspect scorers to read, as `scorer` or `scorer.key`."""
    examinee: AnswerChoice | None = None
    """Name of the examinee, for files of one examinee."""

    def choices(self, **said: Any) -> Choices:
        """The same for the service, with what else is said."""
        return Choices(
            filters=tuple(self.filters),
            metrics=tuple(self.metrics),
            scorers=tuple(self.scorers),
            examinee=self.examinee,
            **said,
        )


class AnswerImportCreate(WhichAnswers):
    """Files of recorded answers.

    Files that only name the model of other files (`results_*.json`, `run_spec.json`) belong in the
    same list.
    """

    model_config = examples(
        {
            "files": [{"name": "scores.csv", "content": "model,q1,q2\ngpt-5,1,0\nllama,1,\n"}],
            "dry_run": True,
        }
    )

    files: Annotated[list[AnswerFile], Field(min_length=1, max_length=1000, fail_fast=True)]
    format: Literal["lm-eval", "inspect", "helm", "openai-evals", "py-irt", "table"] | None = None
    """Format of the files. By default it is detected from each file."""
    no_answer: Literal["wrong", "refused"] = "wrong"
    """How inspect's N (no answer) counts; inspect itself scores it 0."""
    score_range: Annotated[list[float], Field(min_length=2, max_length=2)] = Field(
        default_factory=lambda: [0.0, 1.0]
    )
    """Worst and best score (the best may be lower); they become 0 and 1."""
    unparsed_policy: UnparsedPolicy | None = None
    """How the files count unparseable answers. Default: as the format usually does (lm-eval,
    inspect and HELM: `wrong`). Sessions on versions calibrated from the set do the same."""
    dry_run: bool = False
    """Report what would happen, and write nothing."""

    def to_domain(self) -> AnswerImport:
        """The same for the service.

        Raises:
            InvalidInputError: A content that is not base64.
        """
        return AnswerImport(
            files=[file.to_domain(position) for position, file in enumerate(self.files)],
            file_format=None if self.format is None else ResponseFormat(self.format),
            choices=self.choices(
                refused_no_answer=self.no_answer == "refused",
                score_range=(self.score_range[0], self.score_range[1]),
                unparsed_policy=self.unparsed_policy,
            ),
        )


class CollectionRead(TakenAnswers):
    """What was collected from sessions."""

    object: Literal["response_collection"] = "response_collection"
    sessions: int
    """Sessions collected now; each becomes an examinee of its own."""
    left_out: dict[str, int]
    """Number of sessions left out, by reason: `taken_before`, `not_ended`, `replay` (it repeats the
    answers of another session), `simulated`."""
    accepted: int
    """Number of answers added to the set."""
    pretest_answers: int
    """Number of answers to items in pretest."""


class AnswerImportRead(TakenAnswers):
    """What an import did, or with `dry_run` would do."""

    object: Literal["response_import"] = "response_import"
    dry_run: bool
    files: First[ImportedFile] = Field(description=f"The first {MAX_LISTED}.")
    passed_over: First[str]
    """Files without answers."""
    rows_read: int
    """Answers in the files: rows, or filled cells of a table."""
    skipped: list[SkippedRows]
    without_scores: First[str] = Field(
        description=f"Examinees without a scored answer in the files; the first {MAX_LISTED}."
    )
