import base64
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.errors import SecretsError
from app.settings import Settings
from app.storage.secrets import SecretBox


def _key(byte: int) -> str:
    return base64.b64encode(bytes([byte]) * 32).decode()


def _box(data_dir: Path, key: str | None = None) -> SecretBox:
    return SecretBox(Settings(data_dir=data_dir, secret_key=key))


def test_an_encrypted_text_is_unreadable_and_decrypts(tmp_path: Path) -> None:
    box = _box(tmp_path, _key(1))
    cipher = box.encrypt("sk-of-nobody-else-Größe")
    assert b"nobody" not in cipher  # long enough never to be there by chance
    assert box.decrypt(cipher) == "sk-of-nobody-else-Größe"
    assert not list(tmp_path.iterdir())  # a configured key needs no file


def test_the_key_file_is_made_on_first_need_for_its_owner_alone(tmp_path: Path) -> None:
    box = _box(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    cipher = box.encrypt("x")
    assert (tmp_path / "new" / "secret.key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["secret.key"]
    assert _box(tmp_path / "new").decrypt(cipher) == "x"


def test_simultaneous_first_needs_agree_on_one_key(tmp_path: Path) -> None:
    boxes = [_box(tmp_path) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        ciphers = list(pool.map(lambda box: box.encrypt("x"), boxes))
    assert [_box(tmp_path).decrypt(cipher) for cipher in ciphers] == ["x"] * 8


def test_both_alphabets_of_base64_are_the_same_key(tmp_path: Path) -> None:
    raw = b"\xfb\xff" * 16
    standard, url_safe = base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode()
    assert standard != url_safe
    cipher = _box(tmp_path, standard).encrypt("x")
    assert _box(tmp_path, url_safe).decrypt(cipher) == "x"


def test_keys_rotate_the_first_encrypts_and_all_decrypt(tmp_path: Path) -> None:
    old = _box(tmp_path, _key(1)).encrypt("x")
    both = _box(tmp_path, f"{_key(2)}, {_key(1)}")
    assert both.decrypt(old) == "x"
    assert _box(tmp_path, _key(2)).decrypt(both.encrypt("y")) == "y"


def test_another_key_is_refused_with_what_to_do(tmp_path: Path) -> None:
    cipher = _box(tmp_path, _key(1)).encrypt("x")
    with pytest.raises(SecretsError, match=r"another key .* Set SEXTANT_SECRET_KEY"):
        _box(tmp_path, _key(2)).decrypt(cipher)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("correct horse", "SEXTANT_SECRET_KEY is not base64; make one with"),
        (base64.b64encode(b"short").decode(), "expected 32 bytes in base64, got 5"),
        (",", "SEXTANT_SECRET_KEY holds no key"),
    ],
)
def test_an_invalid_key_is_refused_and_not_shown(tmp_path: Path, key: str, expected: str) -> None:
    with pytest.raises(SecretsError, match=expected) as caught:
        _box(tmp_path, key)
    assert key == "," or key not in caught.value.detail


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o620])
def test_a_key_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    _box(tmp_path).encrypt("x")
    (tmp_path / "secret.key").chmod(mode)
    with pytest.raises(SecretsError, match=f"has mode 0{mode:o}.*chmod 600"):
        _box(tmp_path).encrypt("x")


def test_an_empty_key_file_is_named(tmp_path: Path) -> None:
    os.close(os.open(tmp_path / "secret.key", os.O_CREAT, 0o600))
    with pytest.raises(SecretsError, match=r"secret\.key holds no key"):
        _box(tmp_path).encrypt("x")


def test_a_path_where_no_file_can_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SecretsError, match=r"cannot be used: .* Set SEXTANT_SECRET_KEY"):
        _box(tmp_path / "file" / "below").encrypt("x")
