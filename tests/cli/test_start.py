"""Modules that commands load at their start, checked by name and not by time."""

import subprocess
import sys

from app.cli import LAB, PANELS

#: Each takes longer to load than all the work of a client.
OF_A_SERVER = {
    *("sqlalchemy", "alembic", "fastapi", "starlette", "psycopg", "numpy", "scipy"),
    *("pyarrow", "app.engine", "app.services", "app.storage", "app.api"),
}
#: Needed by few calls: the first such call loads it.
OF_FEW = {
    *("alembic", "mako", "pyarrow", "scipy.optimize", "scipy.interpolate", "scipy.stats"),
    *("scipy.spatial", "sacrebleu", "math_verify", "sympy", "app.demo.model_server"),
    "huggingface_hub",
}
#: Imports run without garbage collection, which would take a fifth of the time.
_QUICK = "import gc, sys\ngc.disable()"


def loaded_by(code: str) -> set[str]:
    """Return names of all modules that a process has loaded at its end."""
    found = subprocess.run(
        [sys.executable, "-c", f"{_QUICK}\n{code}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    return set(found.splitlines()[-1].split())


def command(*words: str) -> str:
    """Return code that runs a command to its end, whatever its exit code."""
    run = f"sys.argv[1:] = {list(words)}\nfrom app.cli import main\n"
    return f"{run}try:\n    main()\nexcept SystemExit:\n    pass"


def test_a_client_command_does_not_load_the_server() -> None:
    commands = [
        command("--help"),
        command("banks", "list", "--server", "http://127.0.0.1:9"),
        command("banks", "catalog"),
        "from app.cli.commands import gate, rank, run, sessions",
    ]
    assert loaded_by("\n".join(commands)) & OF_A_SERVER == set()


def test_help_does_not_load_the_server() -> None:
    names = {name for panel, inside in PANELS.items() if panel != LAB for name in inside}
    # Their options tell of a small server's settings, and of readers with numpy.
    others = sorted(names - {"demo-model", "response-sets"})
    helped = "\n".join(command(name, "--help") for name in others)
    assert loaded_by(helped) & OF_A_SERVER == set()


def test_a_list_from_the_database_loads_only_the_database() -> None:
    loaded = loaded_by("import app.cli.terminal.runtime, app.services.banks.overviews")
    assert loaded & (OF_FEW | {"scipy", "fastapi", "app.engine", "app.services.container"}) == set()


def test_a_starting_server_loads_no_rarely_used_modules() -> None:
    assert loaded_by("import app.cli.servers.server, app.worker.loop") & OF_FEW == set()


def test_the_engine_loads_numpy_special_functions_and_pydantic_only() -> None:
    without = loaded_by("import numpy, scipy.special\nfrom pydantic import BaseModel")
    loaded = loaded_by("from app.engine import *")
    assert "app.engine.adaptive" in loaded
    more = {name.split(".")[0] for name in loaded - without}
    assert more - set(sys.stdlib_module_names) <= {"app", "pydantic", "annotated_types"}


def test_reading_files_does_not_load_the_engine() -> None:
    loaded = loaded_by(
        "from app.sandbox.pool import _PRELOADED as names\nlist(map(__import__, names))"
    )
    assert "pyarrow.parquet" in loaded
    assert loaded & {"scipy", "pydantic", "sqlalchemy", "app.engine.adaptive"} == set()
