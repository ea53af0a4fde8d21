"""The catalogue and installations as JSON."""

from typing import Any, Literal, Self

from app.adapters.prompting import Mode, Normalise
from app.api.schemas.versions import UnparsedPolicy
from app.engine.inference.join import Verdict
from app.exchange.catalog.entry import Entry
from app.records.banks import InstallationRecord
from app.records.fields import shallow
from app.services.catalog.service import Offer
from app.shapes import Failure, Output, WorkRead, WorkStatus


class SourceRead(Output):
    """One source of a file: a URL, or a path in a dataset of the Hugging Face Hub."""

    name: str
    origin: str
    git_blob: str | None
    sha256: str | None


class CalibratedByRead(Output):
    """How the answers behind the parameters were obtained."""

    mode: Mode
    shots: int
    normalise: Normalise | None
    unparsed: UnparsedPolicy | None
    scorer: str
    source: str


class CatalogEntryRead(Output):
    """A bank that can be installed by name."""

    name: str
    object: Literal["catalog_entry"] = "catalog_entry"
    title: str
    description: str
    licence: str
    parameters_licence: str | None = None
    homepage: str | None
    rows: int
    """Number of rows of the split that the questions come from; for a benchmark of agents, number
    of tasks."""
    split: str | None
    """Null for a benchmark of agents."""
    items: int
    """Number of items with published parameters; for a benchmark of agents, of tasks to
    calibrate."""
    agents: int | None
    """Minimum number of agents whose results the installation calibrates; null if the parameters
    are published."""
    few_shot: int
    """Number of worked examples before each question."""
    asked: CalibratedByRead | None = None
    """Null for a benchmark of agents."""
    own: bool
    """Whether the entry is from the operator's own folder."""
    files: dict[str, list[SourceRead]]
    """Sources of each group of files; all sources of a group have the same content."""
    bank_id: str | None
    """Bank of this name, if there is one."""

    @classmethod
    def of(cls, offer: Offer) -> Self:
        """The outgoing shape."""
        entry = offer.listed.entry
        few_shot = entry.few_shot if isinstance(entry, Entry) else None
        return cls.read(
            {
                **dict(entry),
                **entry.size._asdict(),
                "few_shot": 0 if few_shot is None else few_shot.number,
                "own": offer.listed.own,
                "files": {
                    group: [
                        {**dict(source), "name": source.names[-1], "origin": source.origin}
                        for source in files.files
                    ]
                    for group, files, _ in entry.groups()
                },
                "bank_id": offer.bank_id,
            }
        )


class InstallationProgressRead(Output):
    """Progress of an installation; fields that its phase does not have are null."""

    phase: Literal["fetching", "joining", "calibrating", "testing", "writing"] | None = None
    file: str | None = None
    bytes: int | None = None
    """Bytes of the file so far."""
    of_bytes: int | None = None


class FewShotRead(Output):
    """Origin of the worked examples, which are never items of the bank."""

    number: int
    wanted: int
    origin: Literal["training_file", "rows_without_parameters", "none"]
    rows: list[int]
    """Row numbers of the examples in their file, from 0."""
    why: str | None
    """Why the training file of the examples is missing."""


class JoinCheckRead(Output):
    """Check of the parameters against answers; see `.../versions/{v}/join`."""

    verdict: Verdict
    explanation: str
    power: float
    n_answers: int


class InstalledFileRead(Output):
    """A file that was used."""

    name: str
    origin: str
    sha256: str
    checked_by: Literal["git_blob", "sha256", "hub", "content", "nothing"]


class InstallationResult(Output):
    """Result of an installation."""

    bank_id: str
    bank_version_id: str
    bank_version: int
    parameters_hash: str
    items: dict[str, int]
    """Items by state: active, quarantined, pretest."""
    findings: dict[str, int]
    """Number of lint findings by code."""
    calibration_id: str | None = None
    """For a benchmark of agents: the calibration of its results."""
    rows: int
    agents: int | None = None
    """Number of agents whose results were calibrated."""
    split: str | None = None
    order: Literal["shuffled", "rows"] | None = None
    """Order of the rows that the parameters follow."""
    licence: str
    parameters_licence: str | None = None
    few_shot: FewShotRead | None = None
    """Null for a benchmark of agents, as are `split` and `order`."""
    files: dict[str, InstalledFileRead]
    join_check: JoinCheckRead | None = None
    """Check of the join by published answers, if there are any."""
    n_left_out: int = 0
    """Number of rows with parameters that did not become items."""
    was_there: bool
    """Whether the bank was installed already."""

    @classmethod
    def of(cls, result: dict[str, Any]) -> Self:
        """The outgoing shape."""
        if (examples := result.get("few_shot")) is None:
            return cls.read(result)
        examples = {**examples, "origin": examples["from"], "why": examples.get("why")}
        order = result["join"]["order"]
        return cls.read({**result, "few_shot": examples, "order": order})


class InstallationRead(WorkRead):
    """An installation: poll it until `finished_at` is set."""

    id: str
    object: Literal["installation"] = "installation"
    entry: str
    status: WorkStatus
    progress: InstallationProgressRead
    result: InstallationResult | None
    failure: Failure | None

    @classmethod
    def of(cls, record: InstallationRecord) -> Self:
        """The outgoing shape."""
        result = None if record.result is None else InstallationResult.of(record.result)
        return cls.read({**shallow(record), "result": result})
