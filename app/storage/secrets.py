"""Encryption at rest of the secrets of endpoints."""

import base64
import binascii
import contextlib
import os
import re
import stat
import tempfile
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from app.errors import SecretsError
from app.settings import Settings

_KEY_BYTES = 32
_FILE = "secret.key"
_Stamp = tuple[int, int, int, int]
_HOW_TO_MAKE = "make one with `openssl rand -base64 32`"


class SecretBox:
    """Encrypts and decrypts with the configured keys, or with a key file made when first needed.

    There may be several keys: the first one encrypts, all of them decrypt. A changed key file is
    read again, so that a running process uses a new key, or one that was restored.

    Args:
        settings: `secret_key`, or `data_dir` which holds the file `secret.key`.

    Raises:
        SecretsError: The configured key is not a key.
    """

    def __init__(self, settings: Settings) -> None:
        self._path = settings.data_dir / _FILE
        given = settings.secret_key
        self._given = (
            None if given is None else _keys_in(given.get_secret_value(), "SEXTANT_SECRET_KEY")
        )
        self._file: tuple[_Stamp, list[str]] | None = None

    def encrypt(self, text: str) -> bytes:
        """Ciphertext of `text`, authenticated.

        Raises:
            SecretsError: No key is configured and the key file cannot be read or made.
        """
        return _fernet(self._keys(to_encrypt=True)).encrypt(text.encode())

    def decrypt(self, cipher: bytes) -> str:
        """The text that was encrypted.

        Raises:
            SecretsError: It was encrypted with another key, or altered; or there is no key.
        """
        try:
            return _fernet(self._keys()).decrypt(cipher).decode()
        except InvalidToken as exc:
            raise SecretsError(
                "A stored secret was encrypted with another key than the present one "
                f"({'SEXTANT_SECRET_KEY' if self._given else self._path}). {self._cure()}"
            ) from exc

    def renewed(self, cipher: bytes) -> bytes | None:
        """Encrypt `cipher` anew with the first key; None if that key encrypted it already.

        Raises:
            SecretsError: As for `decrypt`.
        """
        with contextlib.suppress(InvalidToken):
            _fernet(self._keys(to_encrypt=True)[:1]).decrypt(cipher)
            return None
        return self.encrypt(self.decrypt(cipher))

    def take_new_key(self) -> None:
        """Put a new key before those of the key file; only the operator changes configured keys.

        Raises:
            SecretsError: The key file cannot be used.
        """
        if self._given is None:
            held = self._keys() if self._path.exists() else []
            self._write([Fernet.generate_key().decode(), *held])

    def forget_old_keys(self) -> None:
        """Remove all but the two newest keys from the key file, once all secrets use the newest.

        The second newest stays, as another process may just have stored a secret with it.
        """
        if self._given is None:
            self._write(self._keys()[:2])

    def _keys(self, *, to_encrypt: bool = False) -> list[str]:
        if self._given is not None:
            return self._given
        try:
            if to_encrypt and not self._path.exists():
                # A key in use whose file was removed is written back, as secrets depend on it.
                keys = self._file[1] if self._file else [Fernet.generate_key().decode()]
                with contextlib.suppress(FileExistsError):
                    _make(self._path, keys)
            stamp = _stamp(self._path)
            if self._file is None or self._file[0] != stamp:
                self._file = stamp, _keys_in(_read(self._path), str(self._path))
        except FileNotFoundError as exc:
            if self._file is None:
                raise SecretsError(
                    "A stored secret cannot be read: SEXTANT_SECRET_KEY is not set and there is no "
                    f"key file {self._path}. {self._cure()}"
                ) from exc
        except OSError as exc:
            raise SecretsError(
                f"The key file {self._path} cannot be used: {exc.strerror}. Set "
                "SEXTANT_SECRET_KEY instead."
            ) from exc
        return self._file[1]

    def _write(self, keys: list[str]) -> None:
        try:
            _make(self._path, keys, replace=True)
        except OSError as exc:
            raise SecretsError(
                f"The key file {self._path} cannot be written: {exc.strerror}."
            ) from exc

    def _cure(self) -> str:
        return (
            "Set SEXTANT_SECRET_KEY to the key that was used then (several, separated by commas, "
            f"are tried in turn), or bring the file {self._path} back. If the old key is lost: "
            "PATCH the api_key and headers of the endpoints, then run `sextant keys rotate-secret`."
        )


def _fernet(keys: list[str]) -> MultiFernet:
    return MultiFernet([Fernet(key) for key in keys])


def _keys_in(text: str, where: str) -> list[str]:
    keys = [_one(part, where) for part in re.split(r"[,\s]+", text) if part]
    if not keys:
        raise SecretsError(f"{where} holds no key; {_HOW_TO_MAKE}.")
    return keys


def _one(key: str, where: str) -> str:
    try:
        raw = base64.b64decode(key.replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError) as exc:
        raise SecretsError(f"{where} is not base64; {_HOW_TO_MAKE}.") from exc
    if len(raw) != _KEY_BYTES:
        raise SecretsError(
            f"{where}: expected {_KEY_BYTES} bytes in base64, got {len(raw)}; {_HOW_TO_MAKE}."
        )
    return base64.urlsafe_b64encode(raw).decode()


def _stamp(path: Path) -> _Stamp:
    """Properties that change whenever the file changes."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size, found.st_mode


def _make(path: Path, keys: list[str], *, replace: bool = False) -> None:
    """Create the whole file; without `replace`, a file of another process stays untouched."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{_FILE}-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.writelines(f"{key}\n" for key in keys)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            Path(partial).replace(path)
        else:
            os.link(partial, path)  # fails when the file exists, unlike a rename
        # With the directory synced, the key file survives a crash.
        directory = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
    finally:
        Path(partial).unlink(missing_ok=True)


def _read(path: Path) -> str:
    with path.open(encoding="ascii", errors="replace") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
        if mode & 0o077:
            raise SecretsError(
                f"The key file {path} has mode {mode:04o}: others can read it. Take the right "
                f"away with `chmod 600 {path}`, and consider the keys stored with it as leaked."
            )
        return file.read()
