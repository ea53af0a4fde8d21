"""Banks and imports as JSON. Versions and items have files of their own."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AliasPath, Field, JsonValue, StringConstraints, model_validator
from typing_extensions import TypeAliasType

from app.adapters.prompting import PromptStyle
from app.api.schemas.versions import (
    FindingRead,
    LongText,
    ShortText,
    UnparsedPolicy,
    VersionName,
    VersionRead,
    VersionSettings,
)
from app.exchange.items import FieldMap
from app.items import BY_KIND, ScorerSpec
from app.records.banks import BankSpec
from app.records.fields import shallow
from app.services.banks.imports import BankImport, Renamed, Tally
from app.services.banks.overviews import BankOverview
from app.services.banks.provisional import Difficulty
from app.services.banks.spec import MAX_PER_SESSION
from app.services.responses.confined_reading import SentFile
from app.services.visibility import View
from app.shapes import (
    ABSENT,
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
from app.validation import NAME_IN_URL

BankName = Annotated[
    Text,
    StringConstraints(max_length=200, pattern=NAME_IN_URL),
    Field(description="Unique name. It is part of URLs, so it contains no `/` or `:`."),
]
_Visibility = Annotated[
    Literal["open", "withheld"],
    Field(
        description="`withheld`: only keys with `banks:write` can see content, targets, prompt, "
        "scorers and answers."
    ),
]
Visibility = TypeAliasType("Visibility", _Visibility)


PretestCount = Annotated[
    int,
    Field(
        ge=0,
        le=MAX_PER_SESSION,
        description=(
            "Number of pretest items in each session by default. They have no parameters and do "
            "not count; their answers serve the next calibration."
        ),
    ),
]


class ScorerModel(Input):
    """A scorer and its parameters; see `/v1/scorers`."""

    name: Annotated[Text, StringConstraints(min_length=1, max_length=100)]
    params: Annotated[
        dict[Annotated[str, StringConstraints(max_length=100)], JsonValue], Field(max_length=100)
    ] = Field(default_factory=dict)

    def to_domain(self) -> ScorerSpec:
        """The same for the services."""
        return ScorerSpec(self.name, self.params)


class BankCreate(Input):
    """A new, empty bank."""

    model_config = examples(
        {
            "name": "arithmetic",
            "description": "Sums and products.",
            "licence": "CC-BY-4.0",
            "default_scorer": {"name": "numeric"},
            "prompt": {"system": "Answer with a number only."},
        }
    )

    name: BankName
    description: LongText = ""
    licence: ShortText | None = None
    source: ShortText | None = None
    visibility: Visibility = "open"
    shared: bool = False
    """Whether other projects may see the bank and measure on it; for open banks."""
    default_scorer: ScorerModel = Field(default_factory=lambda: ScorerModel(name=BY_KIND))
    """Scorer of items that do not name one. `by_kind`: `choice` for items with choices, `exact` for
    others."""
    prompt: PromptStyle = Field(default_factory=PromptStyle)
    unparsed_policy: UnparsedPolicy = "missing"
    pretest_items: PretestCount = 0
    metadata: Metadata = Field(default_factory=dict)

    def to_spec(self) -> BankSpec:
        """The same for the service."""
        return BankSpec(**_domain_fields(self, set(type(self).model_fields)))


class BankUpdate(Input):
    """Fields to change. A field that is left out keeps its value."""

    name: BankName = ABSENT
    description: LongText = ABSENT
    licence: ShortText | None = ABSENT
    source: ShortText | None = ABSENT
    visibility: Visibility = ABSENT
    shared: bool = ABSENT
    default_scorer: ScorerModel = ABSENT
    prompt: PromptStyle = ABSENT
    unparsed_policy: UnparsedPolicy = ABSENT
    pretest_items: PretestCount = ABSENT
    metadata: Metadata = ABSENT

    def to_changes(self) -> dict[str, Any]:
        """The same for the service."""
        return _domain_fields(self, self.model_fields_set)


def _domain_fields(body: BankCreate | BankUpdate, names: set[str]) -> dict[str, Any]:
    values = {name: getattr(body, name) for name in names}
    if "default_scorer" in values:
        values["default_scorer"] = values["default_scorer"].to_domain()
    if "prompt" in values:
        values["prompt"] = values["prompt"].to_dict()
    return values


class BankRead(OwnedRead):
    """A stored bank."""

    id: str
    object: Literal["bank"] = "bank"
    name: str
    description: str
    licence: str | None
    source: str | None
    visibility: str
    shared: bool
    default_scorer: ScorerModel | None
    """Null if the bank is withheld and the key has no `banks:write`."""
    prompt: PromptStyle | None
    """Null in the same case as `default_scorer`."""
    unparsed_policy: str
    pretest_items: int
    metadata: dict[str, str]
    n_items: int
    latest_version: VersionRead | None
    revision: int
    created_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, overview: BankOverview, view: View) -> Self:
        """The outgoing shape of a bank."""
        bank = overview.bank
        return cls.read(
            {
                **shallow(bank),
                "default_scorer": view.content_of(bank, bank.default_scorer),
                "prompt": view.content_of(bank, bank.prompt),
                "n_items": overview.n_items,
                "latest_version": overview.latest,
            }
        )


FieldMapModel = Annotated[
    dict[
        Annotated[Text, StringConstraints(max_length=100)],
        Annotated[Text, StringConstraints(min_length=1, max_length=200)],
    ],
    Field(min_length=1, max_length=20),
]


class UploadedFile(SentContent):
    """A file inside a JSON body, as text or in base64."""

    name: Annotated[Text, StringConstraints(min_length=1, max_length=200)] | None = None
    """Name of the file, for error messages; its suffix tells the format."""

    def to_domain(self, field: str) -> SentFile:
        """The same for the service; `field` of the body holds it, and names it if nothing else.

        Raises:
            InvalidInputError: Not base64.
        """
        return SentFile(self.name or field, self.in_bytes(f"/{field}"))


class ImportCreate(VersionSettings):
    """An item file, a parameter file, or both.

    Items are JSONL or CSV. Parameters are mirt's CSV (`a1,d,g,u`) or `item,a,b,c,d`; they may also
    be fields `a`, `b`, `c`, `d` of the items. Parameters make a new version. With `provisional` and
    without parameters, the parameters of all items of the bank are guessed, so that all can be
    asked at once.

    JSONL, CSV or Parquet files in other forms can be read as items with a `map` of their fields.
    """

    model_config = examples(
        {
            "items": {
                "content": '{"key": "q1", "prompt": "2 + 2 = ?", "target": "4"}',
                "name": "items.jsonl",
            },
            "parameters": {"content": "item,a,b,c,d\nq1,1.2,-0.3,0,1\n"},
            "dry_run": True,
        }
    )

    items: UploadedFile | None = None
    parameters: UploadedFile | None = None
    map: FieldMapModel | None = Field(
        default=None, examples=[{"prompt": "question", "target": "answer"}]
    )
    """Name of each item field, and of the field in the file that it is read from, for files that
    are not item files. Dots lead into objects: `choices.text`."""
    target_after: Annotated[Text, StringConstraints(min_length=1, max_length=100)] | None = None
    """With `map`: the target is the text after the last occurrence of this mark in its field."""
    from_version: VersionName | None = None
    difficulty: Difficulty | None = None
    """For a provisional import: source of the guessed difficulties. Default: the items' field
    `difficulty` if any item has it, else tags if any tells a level."""
    dry_run: bool = False
    """Report what would happen, and write nothing."""

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if self.items is None and self.parameters is None and not self.provisional:
            raise ValueError("give items, parameters or both")
        if self.parameters is not None and self.from_version is not None:
            raise ValueError("give parameters or from_version, not both")
        if self.map is not None and self.items is None:
            raise ValueError("map needs items: it names their fields")
        if self.target_after is not None and self.map is None:
            raise ValueError("target_after needs map, which names the field of the target")
        return self

    @property
    def mapping(self) -> FieldMap | None:
        """How fields of the items' file are called, where it is no item file.

        Raises:
            InvalidInputError: An item has no field of a name.
        """
        if self.map is None:
            return None
        return FieldMap(fields=self.map, target_after=self.target_after)

    def to_domain(self) -> BankImport:
        """How to import, for the service."""
        files = {"items", "map", "target_after", "parameters"}
        return BankImport(**self.model_dump(exclude={*files, "dry_run"}))


class BundleCreate(Input):
    """A bank as one file, as `GET .../bundle` returns it."""

    bundle: UploadedFile
    name: BankName | None = None
    """Name of the bank, created if there is none. Default: that in the bundle."""


class ImportRead(Output):
    """What an import did, or would do with `dry_run`."""

    object: Literal["import"] = "import"
    dry_run: bool
    bank_id: str = Field(validation_alias=AliasPath("bank", "id"))
    version: VersionRead | None
    """The new version, or the latest if it would say the same; null without parameters."""
    items: Tally
    parameters: Tally
    renamed: First[Renamed]
    findings: First[FindingRead] = Field(description=f"The first {MAX_LISTED}.")
    n_findings: int
