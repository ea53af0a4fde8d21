"""Encryption at rest of what endpoints must keep secret."""

import base64
import binascii
import contextlib
import os
import stat
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from app.errors import SecretsError
from app.settings import Settings

_KEY_BYTES = 32
_FILE = "secret.key"
_HOW_TO_MAKE = "make one with `openssl rand -base64 32`"


class SecretBox:
    """Encrypts and decrypts with the configured key, or with a key file made on first need.

    Args:
        settings: `secret_key`, or `data_dir` which holds the file `secret.key`.

    Raises:
        SecretsError: The configured key is not a key, or the file cannot be used.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.data_dir / _FILE
        given = settings.secret_key
        self._fernet = (
            _fernet(given.get_secret_value(), "SEXTANT_SECRET_KEY") if given is not None else None
        )

    def encrypt(self, text: str) -> bytes:
        """Ciphertext of `text`, authenticated.

        Raises:
            SecretsError: No key is configured and the key file cannot be read or made.
        """
        return self._keys().encrypt(text.encode())

    def decrypt(self, cipher: bytes) -> str:
        """The text that was encrypted.

        Raises:
            SecretsError: It was encrypted with another key, or altered; or there is no key.
        """
        try:
            return self._keys().decrypt(cipher).decode()
        except InvalidToken as exc:
            raise SecretsError(
                "A stored secret was encrypted with another key than the present one. Set "
                "SEXTANT_SECRET_KEY to the key that was used then (several, separated by commas, "
                f"are tried in turn) or restore {self._path}; else enter the secret again."
            ) from exc

    def _keys(self) -> MultiFernet:
        if self._fernet is None:
            self._fernet = _fernet(_read_or_make(self._path), str(self._path))
        return self._fernet


def _fernet(text: str, where: str) -> MultiFernet:
    keys = [part.strip() for part in text.split(",") if part.strip()]
    if not keys:
        raise SecretsError(f"{where} holds no key; {_HOW_TO_MAKE}.")
    return MultiFernet([_one(key, where) for key in keys])


def _one(key: str, where: str) -> Fernet:
    try:
        raw = base64.b64decode(key.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise SecretsError(f"{where} is not base64; {_HOW_TO_MAKE}.") from exc
    if len(raw) != _KEY_BYTES:
        raise SecretsError(
            f"{where}: expected {_KEY_BYTES} bytes in base64, got {len(raw)}; {_HOW_TO_MAKE}."
        )
    return Fernet(base64.urlsafe_b64encode(raw))


def _read_or_make(path: Path) -> str:
    try:
        with contextlib.suppress(FileExistsError):
            if not path.exists():
                _make(path)
        return _read(path)
    except OSError as exc:
        raise SecretsError(
            f"The key file {path} cannot be used: {exc.strerror}. Set SEXTANT_SECRET_KEY instead."
        ) from exc


def _make(path: Path) -> None:
    """Create the file whole, or not at all when another process was first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{_FILE}-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(Fernet.generate_key() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # fails when the file exists, unlike a rename
    finally:
        Path(partial).unlink()


def _read(path: Path) -> str:
    with path.open(encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise SecretsError(
                f"The key file {path} has mode {mode:04o}: others can read it. Take the right "
                f"away with `chmod 600 {path}`, and consider the keys stored with it as leaked."
            )
        return file.read()
