"""Named examinees as JSON: who answers a manual session."""

from typing import Annotated

from pydantic import Field, StringConstraints

from app.api.schemas.common import Input, Metadata, Name, Output, Text
from app.records.examinees import Examinee, ExamineeKind
from app.records.fields import convert

_Word = Annotated[Text, StringConstraints(min_length=1, max_length=500)]


class ExamineeInput(Input):
    """Who answers by hand; sessions of one name are one examinee's."""

    name: Name = Field(
        description="Belongs to the key that first used it; others need the scope `admin`."
    )
    kind: ExamineeKind = Field(default=ExamineeKind.MODEL, strict=False)
    model: _Word | None = Field(default=None, description="That answers, or that an agent drives.")
    scaffold: _Word | None = Field(
        default=None, description="What drives the model: an agent is model and scaffold."
    )
    settings: Metadata = Field(default_factory=dict)

    def to_domain(self) -> Examinee:
        """As the service takes it."""
        return convert(Examinee, self)


class ExamineeRead(Output):
    """Who answered by hand, as its client described it."""

    name: str
    kind: ExamineeKind
    model: str | None
    scaffold: str | None
    settings: dict[str, str]
