"""An ended session as a run of MLflow: its steps with their times, its result, its report.

pip install mlflow-skinny ./clients/python
export SEXTANT_SERVER=http://127.0.0.1:8000 SEXTANT_API_KEY=sx_...
export MLFLOW_TRACKING_URI=http://127.0.0.1:5000
python examples/mlflow_run.py ses_...
"""

import sys
from datetime import datetime
from typing import Any

try:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param
    from mlflow.exceptions import MlflowException

    from sextant_client import Session, Sextant, SextantError
except ImportError as missing:
    sys.exit(f"{missing}: pip install mlflow-skinny ./clients/python")

#: What MLflow calls the ways in which a session ends.
_STATUS = {"completed": "FINISHED", "failed": "FAILED", "cancelled": "KILLED"}


def log_session(sextant: Sextant, session_id: str) -> str:
    """Log an ended session in the experiment `sextant/<bank>`; returns the id of the run.

    Raises:
        ValueError: The session goes on.
        SextantError: Sextant refused, or did not answer.
        MlflowException: MLflow refused, or did not answer.
    """
    session, path = sextant.get_session(session_id), f"/v1/sessions/{session_id}"
    if not session.ended or session.finished_at is None:
        raise ValueError(f"Expected an ended session, got {session_id}, which is {session.status}.")
    brief = sextant.request("GET", path, params={"view": "brief"})
    points = sextant.request("GET", f"{path}/trajectory")["data"]
    report = sextant.download(f"{path}/report", params={"format": "html"}).decode()

    mlflow, name = MlflowClient(), f"sextant/{session.bank.name}"
    known = mlflow.get_experiment_by_name(name)
    tags = {**session.metadata, "session": session.id}
    run = mlflow.create_run(
        known.experiment_id if known else mlflow.create_experiment(name),
        run_name=brief["examinee"] or session.id,
        start_time=_ms(session.created_at),
        tags={f"sextant.{name}": value for name, value in tags.items()},
    )
    metrics = [*_steps(points), *_result(brief, session, len(points))]
    mlflow.log_batch(run.info.run_id, metrics, _params(session))
    mlflow.log_text(run.info.run_id, report, "report.html")
    mlflow.set_terminated(run.info.run_id, _STATUS[session.status], _ms(session.finished_at))
    return str(run.info.run_id)


def _steps(points: list[dict[str, Any]]) -> list[Metric]:
    """Ability after each answer, at the time of that answer; nothing where nothing is known."""
    return [
        Metric(name, point[name], _ms(datetime.fromisoformat(point["answered_at"])), number)
        for number, point in enumerate(points, 1)
        for name in ("theta", "se", "score")
        if point[name] is not None
    ]


def _result(brief: dict[str, Any], session: Session, step: int) -> list[Metric]:
    known = brief["interval"] or {"lo": None, "hi": None}
    figures = {"predicted_score": brief["score"], "predicted_score_lo": known["lo"]}
    figures |= {"predicted_score_hi": known["hi"], "items": brief["items"], "usd": brief["usd"]}
    figures |= {"equivalent_random_items": brief["equivalent_random_items"]}
    at = _ms(session.finished_at or session.created_at)
    return [Metric(name, value, at, step) for name, value in figures.items() if value is not None]


def _params(session: Session) -> list[Param]:
    told = {"bank": session.bank.name, "bank_version": session.bank.version, "seed": session.seed}
    told |= {"stops_when": session.stops_when, "stop_reason": session.stop_reason}
    return [Param(name, str(value)) for name, value in told.items()]


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("Expected the id of one session: python examples/mlflow_run.py ses_...")
    try:
        with Sextant() as client:
            print(log_session(client, sys.argv[1]))
    except (SextantError, ValueError, MlflowException) as error:
        sys.exit(str(error))
