"""Configuration. No other module reads the environment.

Every field is an environment variable `SEXTANT_<FIELD>`; the database is also read from the
customary `DATABASE_URL`.
"""

import os
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, ValidationError, field_validator
from pydantic import model_validator as pydantic_model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.errors import InvalidInputError
from app.validation import sentence

_PREFIX = "SEXTANT_"
_DRIVER = "postgresql+psycopg://"
_POSTGRES_SCHEMES = (_DRIVER, "postgresql://", "postgres://")


def _default_data_dir() -> Path:
    if os.geteuid() == 0:
        return Path("/var/lib/sextant")
    shared = os.environ.get("XDG_DATA_HOME", "")
    # The XDG specification says that a relative value is ignored.
    base = Path(shared) if shared.startswith("/") else Path("~/.local/share").expanduser()
    return base / "sextant"


def config_dir() -> Path:
    """Directory in which commands keep personal files, such as the login at a server."""
    own = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(own) if own.startswith("/") else Path("~/.config").expanduser()
    return base / "sextant"


class Settings(BaseSettings):
    """All configuration, checked once at start.

    Raises:
        InvalidInputError: A value cannot be used; the message names its variable.
    """

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        frozen=True,
        validate_by_name=True,
        extra="ignore",
        env_ignore_empty=True,
    )

    data_dir: Path = Field(default_factory=_default_data_dir)
    """Directory of the embedded Postgres and of the secret key file."""

    database_url: str | None = Field(
        default=None,
        repr=False,
        validation_alias=AliasChoices("DATABASE_URL", "SEXTANT_DATABASE_URL"),
    )
    """Postgres to use, `postgresql://user:password@host/name`; without it, the embedded one."""

    secret_key: SecretStr | None = None
    """Key that encrypts endpoint keys at rest: 32 bytes in base64. Several, separated by commas,
    rotate: the first encrypts, all decrypt. Without it, a 0600 file is made in `data_dir`."""

    host: str = "127.0.0.1"
    """Address the server listens on."""

    port: int = Field(default=8000, ge=0, le=65535)
    """TCP port the server listens on; 0 takes a free one."""

    auth: Literal["required", "off"] = "required"
    """Whether callers need a key. `off` is accepted on a loopback `host` only."""

    allowed_networks: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Private networks that endpoints may live in, CIDR, separated by commas."""

    private_endpoints: Literal["loopback", "never", "always"] = "loopback"
    """Whether private and loopback addresses may be called. `loopback`: only for requests from
    this machine, without a proxy, to a server that listens on a loopback address. Addresses in
    `allowed_networks` may always be called."""

    trusted_proxies: Annotated[tuple[IPv4Network | IPv6Network, ...], NoDecode] = ()
    """Proxies that are trusted to say where a request came from, CIDR, separated by commas."""

    worker_concurrency: int = Field(default=128, ge=1, le=10_000)
    """Sessions of one API key that one worker process runs at the same time; it runs almost twice
    as many for many keys and projects together."""

    database_pool_size: int = Field(default=16, ge=1, le=500)
    """Database connections that one process keeps; under load it may open as many again."""

    streams_per_key: int = Field(default=1000, ge=1, le=100_000)
    """Event streams that one API key may have open at a time in one process."""

    max_body_bytes: int = Field(default=32 * 1024 * 1024, ge=1024)
    """Largest request body, bytes."""

    import_memory_bytes: int = Field(default=640 * 1024 * 1024, ge=256 * 1024 * 1024)
    """Memory that reading one import may take, bytes; one such import is read at a time."""

    catalog: Path | None = None
    """Folder of your own catalogue entries, TOML files beside those that Sextant brings along; one
    of the same name replaces Sextant's."""

    neural_models: Path | None = None
    """Folder of the models that the scorer `bertscore` may use, each in a folder of its name."""

    heartbeat_s: float = Field(default=3.0, gt=0, le=300)
    """Seconds between two signs of life of a session's worker."""

    lease_s: float = Field(default=15.0, gt=0, le=3600)
    """Seconds without a sign of life until another worker takes over a session."""

    metrics_port: int | None = Field(default=None, ge=1, le=65535)
    """TCP port on `host` where `sextant worker` serves its metrics; without it, nowhere."""

    traces_endpoint: str | None = Field(
        default=None,
        validation_alias=AliasChoices(
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"
        ),
    )
    """OpenTelemetry collector to which traces are sent over HTTP; without it, no traces."""

    log_format: Literal["console", "json"] = "console"
    """Format of log lines, for people or for machines."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severe level that is logged."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as exc:
            raise _explained(exc) from exc

    @field_validator("data_dir", mode="after")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.expanduser().absolute()

    @field_validator("database_url", mode="after")
    @classmethod
    def _psycopg(cls, value: str | None) -> str | None:
        if value is None:
            return None
        for scheme in _POSTGRES_SCHEMES:
            if value.startswith(scheme):
                return _DRIVER + value.removeprefix(scheme)
        scheme = value.split("://", 1)[0] if "://" in value else "no scheme"
        raise ValueError(f"expected postgresql://user:password@host/name, got {scheme}")

    @field_validator("allowed_networks", "trusted_proxies", mode="before")
    @classmethod
    def _split(cls, value: object) -> object:
        if isinstance(value, str):
            return [part.strip() for part in value.split(",") if part.strip()]
        return value

    @field_validator("log_level", mode="before")
    @classmethod
    def _lower(cls, value: object) -> object:
        return value.lower() if isinstance(value, str) else value

    @pydantic_model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.auth == "off" and not self.is_loopback:
            raise ValueError(
                f"SEXTANT_AUTH: off is accepted only when SEXTANT_HOST is a loopback address, "
                f"got {self.host!r}"
            )
        if self.lease_s < 2 * self.heartbeat_s:
            raise ValueError(
                f"SEXTANT_LEASE_S: expected at least twice SEXTANT_HEARTBEAT_S "
                f"({self.heartbeat_s:g}), got {self.lease_s:g}"
            )
        return self

    @property
    def calls_private(self) -> bool:
        """Whether private addresses may be called for any request."""
        return self.private_endpoints == "always" or (
            self.private_endpoints == "loopback" and self.is_loopback
        )

    @property
    def is_loopback(self) -> bool:
        """Whether the server listens on a loopback address."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


def _explained(exc: ValidationError) -> InvalidInputError:
    """An error with a sentence for each fault, which names its variable and shows no secret."""
    sentences = []
    for error in exc.errors(include_url=False):
        if any(part in str(error["loc"]).lower() for part in ("secret", "database")):
            error = {**error, "input": "a value that is not shown"}
        message = sentence(error)
        if error["loc"]:  # else it is about several fields, and the message names them
            field = str(error["loc"][0])
            message = f"{field if field.isupper() else _PREFIX + field.upper()}: {message}"
        sentences.append(message)
    # Of a wrong network, pydantic says twice what is wrong: as of IPv4 and as of IPv6.
    return InvalidInputError("Settings: " + "; ".join(dict.fromkeys(sentences)) + ".")
