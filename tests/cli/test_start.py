"""What commands load before they do anything: names of packages, not seconds."""

import subprocess
import sys

#: Each takes longer to load than a client needs for all of its work.
OF_A_SERVER = {
    *("sqlalchemy", "alembic", "fastapi", "starlette", "psycopg", "numpy", "scipy"),
    *("pyarrow", "app.engine", "app.services", "app.storage", "app.api"),
}
#: What few calls need: loaded by the first one that does.
OF_FEW = {
    *("alembic", "mako", "pyarrow", "scipy.optimize", "scipy.interpolate", "scipy.stats"),
    *("scipy.spatial", "sacrebleu", "math_verify", "sympy", "app.demo.model_server"),
    "huggingface_hub",
}
#: No garbage is looked for in what is loaded, which takes a fifth of the time.
_QUICK = "import gc, sys\ngc.disable()"


def loaded_by(code: str) -> set[str]:
    """Names of all modules that a process has loaded at its end."""
    found = subprocess.run(
        [sys.executable, "-c", f"{_QUICK}\n{code}\nprint(*sys.modules, file=sys.stderr)"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    return set(found.splitlines()[-1].split())


def command(*words: str) -> str:
    """Code that runs a command to its end, whatever its exit code."""
    run = f"sys.argv[1:] = {list(words)}\nfrom app.cli import main\n"
    return f"{run}try:\n    main()\nexcept SystemExit:\n    pass"


def test_whoever_only_talks_to_a_server_does_not_load_one() -> None:
    commands = [
        command("--help"),
        command("banks", "list", "--server", "http://127.0.0.1:9"),
        command("banks", "catalog"),
        "from app.cli.commands import gate, rank, run, sessions",
    ]
    assert loaded_by("\n".join(commands)) & OF_A_SERVER == set()


def test_a_list_read_from_the_database_loads_the_database_alone() -> None:
    loaded = loaded_by("import app.cli.terminal.runtime, app.services.banks.overviews")
    assert loaded & (OF_FEW | {"scipy", "fastapi", "app.engine", "app.services.container"}) == set()


def test_a_server_that_starts_loads_nothing_that_few_calls_need() -> None:
    assert loaded_by("import app.cli.commands.serve, app.cli.commands.worker") & OF_FEW == set()


def test_the_engine_loads_numpy_special_functions_and_pydantic_only() -> None:
    without = loaded_by("import numpy, scipy.special\nfrom pydantic import BaseModel")
    loaded = loaded_by("from app.engine import *")
    assert "app.engine.adaptive" in loaded
    more = {name.split(".")[0] for name in loaded - without}
    assert more - set(sys.stdlib_module_names) <= {"app", "pydantic", "annotated_types"}


def test_who_reads_files_loads_nothing_that_tests_are_made_of() -> None:
    loaded = loaded_by(
        "from app.sandbox.pool import _PRELOADED as names\nlist(map(__import__, names))"
    )
    assert "pyarrow.parquet" in loaded
    assert loaded & {"scipy", "pydantic", "sqlalchemy", "app.engine.adaptive"} == set()
