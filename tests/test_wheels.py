"""The built wheels can be installed by pip and contain everything that runs."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*words: str, cwd: Path | None = None) -> str:
    ended = subprocess.run(words, cwd=cwd, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.slow
def test_service_and_client_install_together_from_their_wheels(tmp_path: Path) -> None:
    for package in ("sextant-client", "sextant-server"):
        run("uv", "build", "--wheel", "--package", package, "--out-dir", str(tmp_path), cwd=ROOT)
    client, server = sorted(tmp_path.glob("*.whl"))
    packed = {name for wheel in (client, server) for name in zipfile.ZipFile(wheel).namelist()}
    kept = run("git", "ls-files", "app", "migrations", cwd=ROOT).split()
    assert set(kept) - packed == set()

    place = tmp_path / "environment"
    run(sys.executable, "-m", "venv", str(place))
    python = str(place / "bin" / "python")
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(client), str(server))
    # Their dependencies are installed here; this path comes after the installed wheels.
    paths = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(paths, "here.pth").write_text(sysconfig.get_path("purelib"))
    assert run(str(place / "bin" / "sextant"), "--version", cwd=tmp_path) == "sextant 0.1.0\n"
    where = "import app.main, sextant_client as c; print(app.__file__, c.__file__)"
    found = run(python, "-c", where, cwd=tmp_path).split()
    assert all(path.startswith(str(place)) for path in found)
