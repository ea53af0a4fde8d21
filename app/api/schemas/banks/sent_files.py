"""Files inside a JSON body."""

import base64
from typing import Annotated, Final, Self

from pydantic import Field, StringConstraints, model_validator

from app.api.schemas.common import Input, Text
from app.errors import FieldProblem, InvalidInputError

#: Letters of base64 that are decoded in one go; a multiple of four.
_PIECE: Final = 1 << 18


class SentContent(Input):
    """A file: as text, or in base64 where it is none."""

    content: Annotated[Text, Field(min_length=1)] | None = None
    content_base64: Annotated[str, StringConstraints(min_length=4)] | None = Field(
        default=None, description="For files that are no text, such as Parquet, `.eval` and gzip."
    )

    @model_validator(mode="after")
    def _has_one_content(self) -> Self:
        if (self.content is None) == (self.content_base64 is None):
            raise ValueError("give content or content_base64, and not both")
        return self

    def in_bytes(self, pointer: str) -> bytes:
        """The bytes of the file; for a thread, where they are many.

        Args:
            pointer: To this object in the body.

        Raises:
            InvalidInputError: Not base64.
        """
        if self.content_base64 is None:
            return (self.content or "").encode()
        try:
            return _decoded(self.content_base64)
        except ValueError as exc:  # a letter beyond ASCII is no binascii.Error
            problem = FieldProblem(f"{pointer}/content_base64", f"expected base64: {exc}")
            raise InvalidInputError(f"{problem.detail}.", problems=[problem]) from exc


def _decoded(text: str) -> bytes:
    """Base64, decoded in pieces: a file of megabytes would hold up all other threads.

    Raises:
        ValueError: It is not base64.
    """
    if "=" in text[:-2]:
        raise ValueError("padding before its end")
    return b"".join(
        base64.b64decode(text[at : at + _PIECE], validate=True)
        for at in range(0, len(text), _PIECE)
    )
