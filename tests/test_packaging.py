"""Container files name only what exists, and the built wheels contain everything that runs."""

import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.cli import PANELS
from app.settings import Settings

ROOT = Path(__file__).parents[1]
#: An image with a full version, so that later pulls get the tested image.
PINNED = re.compile(r"[a-z/]+:\d+\.\d+(\.\d+)?(-[a-z]+)*(@sha256:[0-9a-f]{64})?")
#: Known fields of objects in `kubernetes`, to find misspelt ones that a cluster may ignore.
FIELDS = {
    *("apiVersion", "kind", "metadata", "name", "labels", "spec", "replicas", "selector"),
    *("matchLabels", "strategy", "rollingUpdate", "maxUnavailable", "maxSurge", "template"),
    *("terminationGracePeriodSeconds", "enableServiceLinks", "automountServiceAccountToken"),
    *("securityContext", "runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile", "type"),
    *("containers", "args", "ports", "containerPort", "image", "env", "valueFrom", "key"),
    *("secretKeyRef", "allowPrivilegeEscalation", "readOnlyRootFilesystem", "capabilities"),
    *("drop", "volumeMounts", "mountPath", "resources", "requests", "limits", "cpu", "memory"),
    *("startupProbe", "readinessProbe", "livenessProbe", "httpGet", "path", "port"),
    *("periodSeconds", "failureThreshold", "timeoutSeconds", "volumes", "emptyDir", "sizeLimit"),
    *("targetPort", "minAvailable", "backoffLimit", "ttlSecondsAfterFinished", "restartPolicy"),
    *("podSelector", "policyTypes", "ingress", "protocol", "app", "part", "value"),
}
_COMMANDS = {name for commands in PANELS.values() for name in commands}
SETTINGS = {"DATABASE_URL", *(f"SEXTANT_{name.upper()}" for name in Settings.model_fields)}


@pytest.fixture
def services() -> dict[str, Any]:
    compose: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    found: dict[str, Any] = compose["services"]
    return found


def test_compose_runs_postgres_the_api_behind_a_proxy_and_two_workers(
    services: dict[str, Any],
) -> None:
    assert set(services) == {"postgres", "api", "proxy", "worker"}
    assert services["worker"]["deploy"]["replicas"] == 2
    assert services["api"]["command"] == ["serve", "--no-worker"]


def test_compose_has_no_repeated_settings(services: dict[str, Any]) -> None:
    """A loader refuses repeated fields, and two services cannot build one image at a time."""
    alike = {"cpus": "cpus", "mem_limit": "memory", "pids_limit": "pids"}
    for name, service in services.items():
        limits = service["deploy"]["resources"]["limits"]
        assert not set(alike) & set(service), name
        assert set(limits) == set(alike.values()), name
        assert isinstance(limits["pids"], int), name
        assert "scale" not in service, name
        assert "container_name" not in service, name
    built = [service["image"] for service in services.values() if "build" in service]
    assert len(built) == len(set(built))
    for service in services.values():
        from_elsewhere = service["image"].partition(":")[0] in {"postgres", "nginx"}
        assert from_elsewhere or "build" in service or service["pull_policy"] == "never"


def test_compose_starts_commands_that_exist_with_settings_that_exist(
    services: dict[str, Any],
) -> None:
    for name in ("api", "worker"):
        assert services[name]["command"][0] in _COMMANDS
        assert set(services[name]["environment"]) <= SETTINGS
        assert services[name]["environment"]["SEXTANT_PRIVATE_ENDPOINTS"] == "never"
        assert services[name]["depends_on"]["postgres"]["condition"] == "service_healthy"


def test_the_image_copies_existing_files_and_sets_known_variables() -> None:
    text = (ROOT / "Dockerfile").read_text()
    for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.MULTILINE):
        for source in sources.split():
            assert (ROOT / source).exists(), source
    assert set(re.findall(r"SEXTANT_[A-Z_]+", text)) <= SETTINGS
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    for image in re.findall(r"^FROM (\S+)", text, re.MULTILINE):
        assert PINNED.fullmatch(image), image
    assert "HEALTHCHECK" in text
    ignored = (ROOT / ".dockerignore").read_text()
    assert all(f"!{name}" in ignored for name in ("app", "migrations", "uv.lock"))


def test_operations_lists_every_setting() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    by_other_names = {"SEXTANT_DATABASE_URL", "SEXTANT_TRACES_ENDPOINT"}
    missing = {name for name in SETTINGS - by_other_names if name not in text}
    assert not missing


def test_no_container_of_compose_has_more_rights_than_it_needs(services: dict[str, Any]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert any(place.startswith("/tmp:") for place in service["tmpfs"]), name
        assert PINNED.fullmatch(service["image"]), name
        assert "privileged" not in service
        assert service.get("user", "of the image") != "root"
    assert "healthcheck" in services["postgres"]
    published = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert published == {"proxy": ["${SEXTANT_PUBLISH:-127.0.0.1:8000}:8080"]}
    (mounted,) = services["proxy"]["volumes"]
    assert (ROOT / mounted.partition(":")[0]).is_file()
    assert mounted.endswith(":ro")


def manifests() -> list[dict[str, Any]]:
    """Return all objects of the Kubernetes files."""
    files = sorted((ROOT / "kubernetes").glob("*.yaml"))
    return [found for file in files for found in yaml.safe_load_all(file.read_text())]


def fields(node: object) -> set[str]:
    """Return names of all fields of an object."""
    if isinstance(node, dict):
        return {*node, *(name for value in node.values() for name in fields(value))}
    if isinstance(node, list):
        return {name for value in node for name in fields(value)}
    return set()


PODS = [entry for entry in manifests() if entry["kind"] in {"Deployment", "Job"}]


def test_kubernetes_has_the_api_workers_and_a_migration() -> None:
    assert {entry["metadata"]["name"] for entry in PODS} == {
        *("sextant-api", "sextant-worker", "sextant-migrate")
    }
    assert fields(manifests()) <= FIELDS


@pytest.mark.parametrize("entry", PODS, ids=lambda entry: entry["metadata"]["name"])
def test_no_pod_has_more_rights_than_it_needs(entry: dict[str, Any]) -> None:
    pod = entry["spec"]["template"]["spec"]
    assert pod["enableServiceLinks"] is False
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == 10001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for kind in ("requests", "limits"):
        assert set(container["resources"][kind]) == {"cpu", "memory"}
    assert PINNED.fullmatch(container["image"])
    assert container["args"][0] in _COMMANDS
    assert {variable["name"] for variable in container["env"]} <= SETTINGS
    plain = [variable for variable in container["env"] if "valueFrom" not in variable]
    assert plain == [{"name": "SEXTANT_PRIVATE_ENDPOINTS", "value": "never"}]
    sources = [variable["valueFrom"] for variable in container["env"] if variable not in plain]
    assert all(set(source) == {"secretKeyRef"} for source in sources)
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    labels = entry["spec"]["template"]["metadata"]["labels"]
    assert entry["spec"].get("selector", {}).get("matchLabels", labels) == labels


def test_selectors_and_probes_of_kubernetes_have_targets() -> None:
    kinds = {entry["kind"]: entry for entry in manifests()}
    (api,) = (entry for entry in PODS if entry["metadata"]["name"] == "sextant-api")
    labels = api["spec"]["template"]["metadata"]["labels"]
    (container,) = api["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert kinds["Service"]["spec"]["selector"] == labels
    assert kinds["Service"]["spec"]["ports"][0]["targetPort"] == port["name"]
    assert kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == labels
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] == port["name"]
        assert container[probe]["httpGet"]["path"] in {"/healthz", "/readyz"}
    assert api["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


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
