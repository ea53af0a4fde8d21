import fcntl
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from app.errors import DatabaseUnavailableError
from app.settings import Settings
from app.storage import binaries
from app.storage.binaries import ServerUser
from app.storage.embedded import EmbeddedPostgres, _within, database_url

_ROOT = Path(__file__).parents[2]
_AS_ROOT = os.geteuid() == 0
_HOLD = """
import sys
from pathlib import Path
from app.storage.embedded import EmbeddedPostgres
with EmbeddedPostgres(Path(sys.argv[1]), durable=False) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""


def _server(directory: Path) -> EmbeddedPostgres:
    return EmbeddedPostgres(directory, durable=False)


def _ask(server: EmbeddedPostgres, query: str) -> object:
    """Return the first value of the result, or None for a statement without result."""
    with psycopg.connect(server.url.replace("+psycopg", "")) as connection:
        cursor = connection.execute(query.encode())
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def _server_is_gone(directory: Path) -> bool:
    """Return whether no process of the server is left: all of them hold this lock."""
    with (directory / "postgres.server").open("r+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _postmaster(directory: Path) -> int:
    return int((directory / "postgres" / "data" / "postmaster.pid").read_text().split()[0])


def _moved(cluster: Path, name: str) -> Path:
    """Return a directory of this name below that of a cluster, to which the cluster is moved."""
    inner = cluster / name
    inner.mkdir()
    (cluster / "postgres").rename(inner / "postgres")
    return inner


def _remove_sockets(server: EmbeddedPostgres) -> None:
    """Remove only its own sockets: other tests have servers at the same time."""
    if server._socket_dir.parents[1] == Path("/tmp"):
        shutil.rmtree(server._socket_dir.parent)


@contextmanager
def _another_process(directory: Path) -> Iterator["subprocess.Popen[str]"]:
    """Run a second Sextant process that uses the server until its stdin is closed."""
    process = subprocess.Popen(
        [sys.executable, "-c", _HOLD, str(directory)],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.communicate()


def _wait_until_up(process: "subprocess.Popen[str]") -> None:
    assert process.stdout
    assert process.stdout.readline().startswith("postgresql")


@pytest.fixture(scope="module")
def made_cluster() -> Iterator[Path]:
    """Return a stopped cluster to copy, since initdb is slow."""
    directory = Path(tempfile.mkdtemp(prefix="sx-", dir="/tmp"))
    directory.chmod(0o755)
    with _server(directory) as server:
        _ask(server, "CREATE TABLE kept (n int)")
        _ask(server, "INSERT INTO kept VALUES (42)")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def cluster(made_cluster: Path, scratch: Path) -> Path:
    """Return a stopped cluster for one test; its table `kept` holds 42."""
    subprocess.run(["cp", "-a", f"{made_cluster}/.", str(scratch)], check=True)
    return scratch


def test_it_is_durable_and_listens_on_no_network_unless_told_otherwise(cluster: Path) -> None:
    with EmbeddedPostgres(cluster) as server:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert _ask(server, f"SELECT current_setting('{setting}')") == "on"
        assert _ask(server, "SELECT current_setting('listen_addresses')") == ""


async def test_it_can_be_entered_from_async_code(cluster: Path) -> None:
    async with _server(cluster) as server:
        assert _ask(server, "SELECT n FROM kept") == 42
    assert _server_is_gone(cluster)


def test_the_last_user_stops_it(cluster: Path) -> None:
    with _another_process(cluster) as other:
        _wait_until_up(other)
        with _server(cluster) as server:
            with _server(cluster):  # two users in one process count as two
                other.communicate()
            assert _ask(server, "SELECT n FROM kept") == 42
        assert _server_is_gone(cluster)
    with _another_process(cluster) as other:
        _wait_until_up(other)
        with _server(cluster):
            pass
        assert not _server_is_gone(cluster)
    assert _server_is_gone(cluster)


def test_a_server_left_by_a_killed_process_is_taken_over_and_stopped(cluster: Path) -> None:
    with _another_process(cluster) as other:
        _wait_until_up(other)
        other.kill()
    postmaster = _postmaster(cluster)
    with _server(cluster) as server:
        assert _postmaster(cluster) == postmaster
        assert _ask(server, "SELECT n FROM kept") == 42
    assert _server_is_gone(cluster)


def test_a_killed_postgres_is_started_again_with_all_committed_data(cluster: Path) -> None:
    with EmbeddedPostgres(cluster) as server:
        _ask(server, "INSERT INTO kept VALUES (43)")
        os.kill(_postmaster(cluster), signal.SIGKILL)
        server.start()
        assert _ask(server, "SELECT count(*) FROM kept") == 2
    assert _server_is_gone(cluster)


def test_it_starts_after_all_processes_were_killed(cluster: Path) -> None:
    with _another_process(cluster) as other:
        _wait_until_up(other)
        os.kill(_postmaster(cluster), signal.SIGKILL)
        other.kill()
    with _server(cluster) as server:
        assert _ask(server, "SELECT n FROM kept") == 42


def test_a_stale_pid_file_does_not_harm_an_unrelated_process(cluster: Path) -> None:
    with _server(cluster):
        contents = (cluster / "postgres" / "data" / "postmaster.pid").read_text()
        socket_lock = (cluster / "postgres" / "run" / ".s.PGSQL.5432.lock").read_text()
    owner = (cluster / "postgres").stat()
    # Of the same user, so a signal would reach it and Postgres would take it for its own.
    stranger = subprocess.Popen(["sleep", "60"], user=owner.st_uid if _AS_ROOT else None)
    try:
        for place, text in (
            (cluster / "postgres" / "data" / "postmaster.pid", contents),
            (cluster / "postgres" / "run" / ".s.PGSQL.5432.lock", socket_lock),
            (cluster / "postgres" / "run" / ".s.PGSQL.5432", "a stale socket\n"),
        ):
            place.write_text(f"{stranger.pid}\n" + text.split("\n", 1)[1])
            os.chown(place, owner.st_uid, owner.st_gid)
        with _server(cluster) as server:
            assert _ask(server, "SELECT n FROM kept") == 42
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.slow
def test_four_first_starts_at_once_share_one_server(scratch: Path) -> None:
    with (
        _another_process(scratch) as first,
        _another_process(scratch) as second,
        _another_process(scratch) as third,
        _another_process(scratch) as fourth,
    ):
        for process in (first, second, third, fourth):
            _wait_until_up(process)
    assert [p.returncode for p in (first, second, third, fourth)] == [0, 0, 0, 0]
    assert _server_is_gone(scratch)


@pytest.mark.slow
def test_it_starts_after_a_killed_first_start(scratch: Path) -> None:
    with _another_process(scratch) as first:
        assert _within(60, (scratch / "postgres" / "data.partial" / "base").exists)
        first.kill()
    assert not (scratch / "postgres" / "data").exists()
    with _server(scratch) as server:
        assert _ask(server, "SELECT 1") == 1


@pytest.mark.parametrize(
    "name", ["x" * 120, "a comma, a space", "a 'quote\" and $HOME", "Größe"], ids=lambda n: n[:9]
)
def test_any_directory_name_will_do(cluster: Path, name: str) -> None:
    with _server(_moved(cluster, name)) as server:
        assert _ask(server, "SELECT n FROM kept") == 42
    _remove_sockets(server)


@pytest.fixture
def quoted(scratch: Path) -> Path:
    """Return a directory whose name has shell commands in it."""
    directory = scratch / "a 'quote\" and `touch $HOME`"
    directory.mkdir()
    return directory


def _copied(below: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy the programs of Postgres below a directory, where alone they are found."""
    original = binaries.find(None).directory.resolve()
    copy = below / Path(*original.parts[-3:])
    binaries._copy(original, copy)
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([copy]))


def test_programs_in_any_directory_set_a_cluster_up_in_any_directory(
    quoted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _copied(quoted, monkeypatch)
    with _server(quoted) as server:
        assert _ask(server, "SELECT 1") == 1
    _remove_sockets(server)


def test_a_log_that_is_a_link_to_elsewhere_is_not_written(cluster: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "precious"
    elsewhere.write_text("years of work")
    log = cluster / "postgres" / "server.log"
    log.unlink()
    log.symlink_to(elsewhere)
    with pytest.raises(DatabaseUnavailableError, match="cannot use"):
        _server(cluster).start()
    assert elsewhere.read_text() == "years of work"


def test_a_short_socket_directory_that_others_can_enter_is_refused(cluster: Path) -> None:
    server = _server(_moved(cluster, "x" * 120))
    planted = server._socket_dir.parent
    planted.mkdir(mode=0o777)
    planted.chmod(0o777)
    try:
        with pytest.raises(DatabaseUnavailableError, match="must be a directory of mode 0700"):
            server.start()
    finally:
        planted.rmdir()


def test_a_directory_with_other_contents_is_left_alone(scratch: Path) -> None:
    foreign = scratch / "postgres" / "data" / "thesis.tex"
    foreign.parent.mkdir(parents=True)
    (scratch / "postgres").chmod(0o700)
    if _AS_ROOT:
        user = ServerUser.unprivileged()
        os.chown(scratch / "postgres", user.uid, user.gid)
    foreign.write_text("years of work")
    with pytest.raises(DatabaseUnavailableError, match="not a Postgres data directory"):
        _server(scratch).start()
    assert foreign.read_text() == "years of work"


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (9, "made by PostgreSQL 9, and only 1"),
        (99, r"written by a newer Sextant, made by PostgreSQL 99, and only 1.*Upgrade Sextant"),
    ],
)
def test_a_cluster_of_another_version_is_named(cluster: Path, version: int, told: str) -> None:
    (cluster / "postgres" / "data" / "PG_VERSION").write_text(f"{version}\n")
    with pytest.raises(DatabaseUnavailableError, match=told):
        _server(cluster).start()


@pytest.mark.parametrize("mode", [0o750, 0o755, 0o711], ids=oct)
def test_a_directory_of_a_newer_sextant_is_named(cluster: Path, mode: int) -> None:
    """Versions differ in the access rights; the rights alone would not explain the error."""
    (cluster / "postgres").chmod(mode)
    told = rf"^{cluster} was written by a newer Sextant or .* mode {mode:04o}.*Upgrade Sextant"
    with pytest.raises(DatabaseUnavailableError, match=told):
        _server(cluster).start()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DatabaseUnavailableError, match=r"cannot use .*SEXTANT_DATA_DIR"):
        _server(tmp_path / "file" / "below").start()


def test_a_full_disk_gives_one_clear_sentence(scratch: Path) -> None:
    def no_large_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    result = subprocess.run(
        [sys.executable, "-c", _HOLD, str(scratch)],
        cwd=_ROOT,
        preexec_fn=no_large_files,
        capture_output=True,
        text=True,
        check=False,
    )
    last_line = result.stderr.splitlines()[-1]
    assert "DatabaseUnavailableError: The embedded Postgres " in last_line
    assert str(scratch) in last_line
    assert "File too large" in last_line
    with _server(scratch) as server:  # with free space it works again
        assert _ask(server, "SELECT 1") == 1


def test_the_configured_url_takes_precedence_over_the_embedded_server(scratch: Path) -> None:
    settings = Settings(database_url="postgresql://db.example/x", data_dir=scratch / "unused")
    with database_url(settings) as url:
        assert url == "postgresql+psycopg://db.example/x"
    assert not (scratch / "unused").exists()


@pytest.mark.skipif(not _AS_ROOT, reason="only root runs the server as another user")
class TestAsRoot:
    def test_other_processes_of_the_servers_user_reach_neither_sockets_nor_files(
        self, cluster: Path
    ) -> None:
        user = ServerUser.unprivileged()
        home = cluster / "postgres"
        os.chown(home, user.uid, user.gid)  # as earlier versions left it
        home.chmod(0o700)
        with _server(cluster) as server:
            assert _ask(server, "SELECT n FROM kept") == 42
            pid = _postmaster(cluster)
            for place in (home / "run" / ".s.PGSQL.5432", home / "data", f"/proc/{pid}/cwd/data"):
                looked = subprocess.run(
                    ["ls", place],
                    user=user.uid,
                    group=user.gid,
                    extra_groups=[],
                    check=False,
                    capture_output=True,
                    text=True,
                )
                assert "Permission denied" in looked.stderr
        with _server(cluster) as server:
            assert _ask(server, "SELECT n FROM kept") == 42

    def test_a_directory_that_the_other_user_cannot_enter_is_named(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o700)
        with pytest.raises(DatabaseUnavailableError, match="keeps that user out of"):
            _server(tmp_path / "data").start()

    def test_programs_in_a_private_home_are_copied_once_to_any_data_directory(
        self, quoted: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = scratch / "home"
        home.mkdir(mode=0o700)
        _copied(home, monkeypatch)
        for outdated in ("partial-of-a-killed-run", "postgres-0.1-of-last-year"):
            (quoted / "binaries" / outdated).mkdir(parents=True)
        with _server(quoted) as server:
            assert _ask(server, "SELECT 1") == 1
        (copy,) = (quoted / "binaries").iterdir()
        made = copy.stat().st_ctime_ns
        with _server(quoted):
            pass
        _remove_sockets(server)
        assert copy.stat().st_ctime_ns == made


def test_an_old_postgres_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = binaries.Binaries(directory=tmp_path, version="15.18", major=15)
    monkeypatch.setattr(binaries, "_candidates", lambda: iter([tmp_path]))
    monkeypatch.setattr(binaries, "_version", lambda _: old)
    with pytest.raises(DatabaseUnavailableError, match=r"no PostgreSQL 16 or newer .*embedded\]"):
        binaries.find(None)
    assert binaries.find(15) == old


def test_programs_behind_a_link_are_run_where_they_lie() -> None:
    with tempfile.TemporaryDirectory() as open_, tempfile.TemporaryDirectory() as closed:
        Path(open_).chmod(0o755)  # the user cannot follow links below a directory of mode 0700
        link = Path(closed, "bin")
        link.symlink_to(open_)
        found = binaries.Binaries(directory=link, version="18.1", major=18)
        published = binaries.publish(found, Path(closed), ServerUser(uid=65534, gid=65534))
        assert published.directory == Path(open_).resolve()
