"""Sextant as a provider of EvalHub: a benchmark is a bank, a job is a session.

pip install "eval-hub-sdk[adapter]" ./clients/python
export SEXTANT_SERVER=http://127.0.0.1:8000 SEXTANT_API_KEY=sx_...
python examples/evalhub_provider.py

It reads the job where EvalHub puts it. A job's `parameters` are fields of a session: `stopping`,
`budget`, `seed`, ... The server of Sextant calls the model, not this program; of a model that asks
for a key give `endpoint_id`, a saved endpoint.
"""

import sys
from typing import Any

try:
    import evalhub.adapter as hub
    from typing_extensions import override

    from sextant_client import Session, Sextant, SextantError
except ImportError as missing:
    sys.exit(f'{missing}: pip install "eval-hub-sdk[adapter]" ./clients/python')


class SextantAdapter(hub.FrameworkAdapter):
    """Runs one job."""

    @override
    def run_benchmark_job(self, config: hub.JobSpec, callbacks: hub.JobCallbacks) -> hub.JobResults:
        """Measure the model and tell EvalHub how it goes.

        Raises:
            SextantError: Sextant refused, or did not answer.
            ValueError: No session can be made of the job, or it came to no result.
        """
        try:
            with Sextant() as sextant:
                return _measured(sextant, config, callbacks)
        except (SextantError, ValueError) as error:
            told = hub.MessageInfo(message=str(error), message_code="sextant")
            failed = hub.JobStatusUpdate(status=hub.JobStatus.FAILED, error_message=told)
            callbacks.report_status(failed)
            raise


def _measured(sextant: Sextant, config: hub.JobSpec, callbacks: hub.JobCallbacks) -> hub.JobResults:
    session = _session_of(sextant, config)
    seen: dict[str, str | int] = {"view": "brief", "wait": 5}
    while True:
        brief = sextant.request("GET", f"/v1/sessions/{session.id}", params=seen)
        if brief["status"] in ("completed", "failed", "cancelled"):
            break
        update = hub.JobStatusUpdate(
            status=hub.JobStatus.RUNNING,
            phase=hub.JobPhase.RUNNING_EVALUATION,
            completed_steps=brief["items"],
            total_steps=brief["expected_items"],
        )
        callbacks.report_status(update)
    session = sextant.get_session(session.id)
    if session.status != "completed":
        why = session.failure.detail if session.failure else session.stop_detail
        raise ValueError(f"Session {session.id} is {session.status}: {why}")
    return _results(config, brief, session)


def _session_of(sextant: Sextant, config: hub.JobSpec) -> Session:
    """The session of the job: of a job that is begun again the one that there is."""
    job = {"evalhub_job": f"{config.id}/{config.benchmark_index}"}
    for begun in sextant.list_sessions(metadata=job, limit=1):
        if begun.status not in ("failed", "cancelled"):
            return begun
    fields: dict[str, Any] = {**config.parameters, "metadata": job}
    if config.num_examples is not None:
        fields["stopping"] = {**fields.get("stopping", {}), "max_items": config.num_examples}
    model = config.model
    if "endpoint_id" not in fields:
        fields["endpoint"] = {"kind": "openai_chat", "base_url": model.url, "model": model.name}
    else:
        saved = sextant.request("GET", f"/v1/endpoints/{fields['endpoint_id']}")
        if saved["model"] != model.name:
            raise ValueError(
                f"Expected an endpoint of {model.name!r}, the job's model, "
                f"got {fields['endpoint_id']} of {saved['model']!r}."
            )
    return sextant.create_session(config.benchmark_id, **fields)


def _results(config: hub.JobSpec, brief: dict[str, Any], session: Session) -> hub.JobResults:
    known = brief["interval"] or {"lo": None, "hi": None}
    figures = {"predicted_score": brief["score"], "predicted_score_lo": known["lo"]}
    figures |= {"predicted_score_hi": known["hi"], "theta": brief["theta"], "theta_se": brief["se"]}
    return hub.JobResults(
        id=config.id,
        benchmark_id=config.benchmark_id,
        benchmark_index=config.benchmark_index,
        model_name=config.model.name,
        results=[
            hub.EvaluationResult(metric_name=name, metric_value=value, num_samples=brief["items"])
            for name, value in figures.items()
            if value is not None
        ],
        overall_score=brief["score"],
        num_examples_evaluated=brief["items"],
        duration_seconds=session.usage.seconds or 0.0,
        additional_info=brief,
    )


if __name__ == "__main__":
    try:
        adapter = SextantAdapter()
        callbacks = hub.DefaultCallbacks.from_adapter(adapter)
        callbacks.report_results(adapter.run_benchmark_job(adapter.job_spec, callbacks))
    except (SextantError, ValueError, FileNotFoundError) as error:
        sys.exit(str(error))
