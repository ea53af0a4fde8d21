"""Tables. One class a table, `*Row`; only `app/storage` sees them."""

from datetime import datetime
from typing import Any

from sqlalchemy import (
    DateTime,
    LargeBinary,
    MetaData,
    Text,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, DOUBLE_PRECISION, JSONB
from sqlalchemy.orm import DeclarativeBase

Json = dict[str, Any]


class Base(DeclarativeBase):
    """Declarative base with the constraint names that migrations rely on."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy's own class-level protocol)
        str: Text(),
        datetime: DateTime(timezone=True),
        Json: JSONB(none_as_null=True),
        list[Any]: JSONB(none_as_null=True),
        list[str]: ARRAY(Text()),
        list[float]: ARRAY(DOUBLE_PRECISION()),
        float: DOUBLE_PRECISION(),
        bytes: LargeBinary(),
    }


EMPTY_OBJECT = text("'{}'::jsonb")
EMPTY_TEXTS = text("'{}'::text[]")
