from ipaddress import ip_network
from pathlib import Path

import pytest
from pydantic_core import InitErrorDetails, ValidationError

from app.errors import InvalidInputError
from app.settings import Settings, _explained


def test_defaults_suit_one_machine_and_require_a_key() -> None:
    settings = Settings()
    assert settings.auth == "required"
    assert settings.is_loopback
    assert settings.database_url is None
    assert settings.allowed_networks == ()


def test_every_field_is_read_from_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEXTANT_PORT", "9000")
    monkeypatch.setenv("SEXTANT_ALLOWED_NETWORKS", "10.0.0.0/8, fd00::/8")
    monkeypatch.setenv("SEXTANT_LOG_LEVEL", "DEBUG")
    settings = Settings()
    assert settings.port == 9000
    assert settings.allowed_networks == (ip_network("10.0.0.0/8"), ip_network("fd00::/8"))
    assert settings.log_level == "debug"


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_the_customary_variable_names_the_database(
    monkeypatch: pytest.MonkeyPatch, scheme: str
) -> None:
    monkeypatch.setenv("DATABASE_URL", f"{scheme}://u:p@db/sextant")
    assert Settings().database_url == "postgresql+psycopg://u:p@db/sextant"


def test_an_ordinary_user_keeps_data_where_the_desktop_standard_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    monkeypatch.setenv("HOME", "/home/ada")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert Settings().data_dir == Path("/home/ada/.local/share/sextant")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert Settings().data_dir == tmp_path / "sextant"
    monkeypatch.setenv("XDG_DATA_HOME", "relative/is/invalid")
    assert Settings().data_dir == Path("/home/ada/.local/share/sextant")


def test_root_keeps_data_where_another_user_can_reach_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert Settings().data_dir == Path("/var/lib/sextant")


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("SEXTANT_PORT", "tcp://10.0.0.1:8000", "_PORT: expected a whole number, got 'tcp://10"),
        ("SEXTANT_PORT", "70000", "SEXTANT_PORT: .*65535.*got '70000'"),
        ("SEXTANT_AUTH", "none", "SEXTANT_AUTH: .*'required' or 'off', got 'none'"),
        ("SEXTANT_ALLOWED_NETWORKS", "10.0.0.1/8", "NETWORKS: expected a network such as [^;]*$"),
        ("SEXTANT_HEARTBEAT_S", "0", "SEXTANT_HEARTBEAT_S: expected a number > 0, got '0'"),
        ("SEXTANT_LEASE_S", "1", "SEXTANT_LEASE_S: .*twice SEXTANT_HEARTBEAT_S .*, got 1"),
        ("SEXTANT_LOG_LEVEL", "loud", "SEXTANT_LOG_LEVEL: .*'debug'.*got 'loud'"),
        ("DATABASE_URL", "mysql://u:p@db/x", "DATABASE_URL: expected postgresql://.*got mysql"),
    ],
)
def test_a_wrong_value_gives_one_sentence_that_names_the_variable(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, expected: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InvalidInputError, match=expected) as caught:
        Settings()
    assert "\n" not in caught.value.detail


def test_secrets_show_neither_in_errors_nor_in_the_settings_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DATABASE_URL", "oracle://scott:tiger@db/x")
    with pytest.raises(InvalidInputError) as caught:
        Settings()
    assert "tiger" not in caught.value.detail
    wrong: InitErrorDetails = {"type": "int_parsing", "loc": ("secret_key",), "input": "hunter2"}
    with pytest.raises(InvalidInputError) as caught:
        raise _explained(ValidationError.from_exception_data("Settings", [wrong]))
    assert "hunter2" not in caught.value.detail
    shown = repr(Settings(database_url="postgresql://u:hunter2@db/x", secret_key="c2VjcmV0"))
    assert "hunter2" not in shown
    assert "c2VjcmV0" not in shown


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_authentication_can_be_off_on_loopback(host: str) -> None:
    assert Settings(host=host, auth="off").auth == "off"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "localhost.example", ""])
def test_authentication_cannot_be_off_elsewhere(host: str) -> None:
    with pytest.raises(InvalidInputError, match=r"SEXTANT_AUTH: off .* loopback address"):
        Settings(host=host, auth="off")
