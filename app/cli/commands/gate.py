"""`sextant gate`: decide whether a model may be released; the exit code is the decision.

| exit code | meaning |
|---|---|
| 0 | go |
| 1 | no go, or no result: the session failed, or has too few scored answers |
| 2 | inconclusive |
| 64 | the gate could not be asked: wrong options, no such session, server away |
| 70 | a fault of Sextant itself |
| 130 | interrupted |

No other command uses 64. Elsewhere wrong input gives 2, which here means inconclusive.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand
from typing_extensions import override

from app.cli.commands.run import FIELDS
from app.cli.gating.judging import Judge, Verdict, junit, markdown, outcome_of, reports_of
from app.cli.gating.policy import Budget, Policy, Rule, read_policy
from app.cli.servers.connection import connected, path_of, run_to_the_end
from app.cli.servers.options import chosen, on_server
from app.cli.terminal import options
from app.cli.terminal.console import (
    JsonObject,
    err,
    show_error,
    show_facts,
    write_file,
    write_json,
)
from app.cli.terminal.examinees import (
    ENDPOINT,
    SETTINGS,
    examinee,
    is_url,
    require_fitting,
)
from app.cli.terminal.fields import Fields, below, option
from app.cli.terminal.options import given
from app.cli.terminal.watch import conduct, report, watch
from app.errors import InvalidInputError, SextantError

P = ParamSpec("P")
R = TypeVar("R")
#: Exit codes of sysexits.h: wrong usage, and a fault of the program itself.
USAGE, SOFTWARE = 64, 70
#: The rule of a single gate.
_RULE: Fields = {
    "/threshold": option(float, "Threshold for the score (a share, 0 to 1) or theta (logits)."),
    "/baseline": option(
        str, "Instead of a threshold: a result by name (`sextant baselines`) or session id."
    ),
    "/tolerance": option(
        float,
        "How much worse than --baseline passes: points, or logits of theta.",
        metavar="POINTS",
    ),
    "/metric": option(
        Literal["score", "theta"], "Metric to compare: the score (default), or the ability (theta)."
    ),
    "/tag": option(
        str,
        "Tag whose questions the score is about, if the bank measures several abilities; "
        "by default the whole bank.",
    ),
    "/direction": option(
        Literal["above", "below"], "Side of the threshold that means go; by default above."
    ),
    "/confidence": option(
        float, "Confidence of the interval that must lie wholly on one side; 0.95 by default."
    ),
}
#: The session that a single gate starts.
_SESSION = {
    **below("/session/endpoint", SETTINGS, "/kind", "/api_key"),
    **below("/session", FIELDS, "/prediction", "/stopping/s", "/stopping/max_items"),
    **below("/session", FIELDS, "/concurrency", "/budget/tokens", "/seed"),
}
#: An error is not 2: pipelines may let an inconclusive gate pass, but never a broken run.
EXIT_CODES = {"go": 0, "no_go": 1, "error": 1, "inconclusive": 2}


class Command(TyperCommand):
    """A command whose exit codes replace the 1 and 2 of click and Python."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.Exit:  # --help
            raise
        except Exception as error:
            error.exit_code = USAGE  # type: ignore[attr-defined]  # click exits with this code
            raise

    @override
    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except (typer.Exit, typer.Abort):
            raise
        except Exception as error:  # noqa: BLE001  (Python's exit code 1 would mean no go)
            err.print(f"Error: {type(error).__name__}: {error}", style="red")
            raise typer.Exit(SOFTWARE) from None


def _with_reports(command: Callable[P, R]) -> Callable[P, R]:
    """Let a command write its reports also where it fails: pipelines show them, and no stderr."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **given: P.kwargs) -> R:
        try:
            return command(*args, **given)
        except SextantError as error:
            xml, comment = reports_of(error)
            for name, report in (("junit_file", xml), ("markdown_file", comment.encode())):
                if (target := given[name]) is not None:
                    write_file(str(target), report)
            raise

    return wrapped


@on_server(
    json="Write the gate as JSON; - for stdout.",
    runs=True,
    code=USAGE,
    fields={**_RULE, **_SESSION},
    names={
        **below("/session", ENDPOINT),
        "/session/bank": "--bank",
        "/session_id": "--session",
        "/stopping": "--extend-to",
    },
)
@_with_reports
def command(
    body: dict[str, Any],
    session: Annotated[
        str | None, typer.Option(help="Id of a session; by default a new one is started.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="Base URL of the model's API, such as .../v1, or a saved endpoint by name or id."
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model name, as the endpoint knows it.")] = None,
    bank: Annotated[
        str | None, typer.Option(help="Bank of the questions; `demo` comes with Sextant.")
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(help="YAML file of rules, instead of the options of a single gate."),
    ] = None,
    extend_to: Annotated[
        int | None,
        typer.Option(help="While inconclusive, continue up to this many questions.", min=1),
    ] = None,
    commit: Annotated[
        str | None,
        typer.Option(
            help="Commit under test; with --policy, each commit is tested once.",
            envvar=["GITHUB_SHA", "CI_COMMIT_SHA"],
        ),
    ] = None,
    quiet: options.QuietOption = False,
    junit_file: Annotated[
        str | None, options.output_option("--junit", help="Write JUnit's XML; - for stdout.")
    ] = None,
    markdown_file: Annotated[
        str | None,
        options.output_option("--markdown", help="Write a comment in Markdown; - for stdout."),
    ] = None,
) -> None:
    """Decide by one session whether a model may be released.

    Compares --session with --threshold or --baseline, or asks --endpoint on
    --bank first. With --policy, checks every rule of a file.

    Exit code 0 is go, 1 no go, 2 inconclusive; also 1 if the session has no
    result, and 64 for wrong options and unreachable servers.
    """
    json = chosen().json
    session_body = body.pop("session", {})
    asked_model = session_body.pop("endpoint", {})
    if policy is not None:
        own = {"kind": asked_model.get("kind"), "session": session, "endpoint": endpoint}
        own |= {"model": model, "bank": bank, "extend_to": extend_to}
        if body or session_body or given(**own):
            raise InvalidInputError(
                "--policy defines the gates and how their questions are asked: leave the "
                "options of a single gate out."
            )
        rules = read_policy(policy)
        asked_model = {"kind": rules.kind, **asked_model}
    else:
        rule = Rule.model_construct(name="gate", bank=bank or "", **body)
        rule.require_mark("--")
        if session is not None and (endpoint or model or bank or "prediction" in session_body):
            raise InvalidInputError(
                "Give --session, or --endpoint with --model and --bank; the prediction of a "
                "session is fixed when it starts, so --prediction does not go with --session."
            )
        if session is None and not (endpoint and bank and (model or not is_url(endpoint))):
            raise InvalidInputError(
                "Give --session, or all of --endpoint, --model and --bank; a saved endpoint needs "
                "no --model."
            )
        # Not validated here: the server reports faults, and names the options that cause them.
        rules = Policy.model_construct(
            endpoint=endpoint or "",
            model=model,
            budget=Budget.model_construct(**session_body.pop("budget", {})),
            session=session_body,
            extend_to=extend_to,
            rules=(rule,),
        )
    if session is None:
        try:
            require_fitting(rules.endpoint, rules.model, asked_model)
        except InvalidInputError as error:
            if policy is None:
                raise
            # A policy has fields in place of options.
            raise InvalidInputError(f"{policy}, {error.detail.replace('--', '')}") from None

    def in_policy(pointer: str) -> str:
        """Name a field of a gate as the policy file does."""
        own = re.sub("^/session/(?=bank|budget|endpoint)", "/", pointer)  # its top level
        return f"{own[1:].replace('/', '.')} in {policy}"

    async def decide() -> list[Verdict]:
        word = None if policy is None else in_policy
        async with connected(bank=rules.rules[0].bank, word=word) as client:
            asked: JsonObject = {}
            if session is None:
                asked = await examinee(client, rules.endpoint, rules.model, asked_model)

            async def watched(begun: JsonObject) -> JsonObject:
                # A signal leaves a session going on that another command began.
                wait = watch if begun["id"] == session else conduct
                ended = await wait(client, begun, quiet=quiet)
                if json != "-" and not quiet:
                    report(ended, error_follows=ended["status"] == "failed")
                return ended

            judge = Judge(
                client=client,
                policy=rules,
                asked=asked,
                file=policy,
                commit=commit if policy is not None else None,
                watch=watched,
            )
            if session is None:
                verdicts = await judge.decide()
            else:
                begun = await client.request("GET", path_of("sessions", session))
                verdicts = await judge.by(begun, rules.rules)
            return [replace(one, steps=await judge.steps(one)) for one in verdicts]

    verdicts = run_to_the_end(decide)
    whole = outcome_of(verdicts)
    is_shown = "-" not in (json, junit_file, markdown_file)
    if is_shown:
        for verdict in verdicts:
            _show(verdict, named=policy is not None)
    told = [
        {**one.told, "outcome": one.outcome, "rule": one.rule.name, "tier": one.rule.tier}
        for one in verdicts
    ]
    alone = {**verdicts[0].told, "outcome": whole}
    write_json(json, {"outcome": whole, "rules": told} if policy is not None else alone)
    if junit_file is not None:
        write_file(junit_file, junit(verdicts))
    if markdown_file is not None:
        named = chosen().target
        write_file(markdown_file, markdown(verdicts, named.url if named else None).encode())
    if whole == "error":
        why = next(one for one in verdicts if one.outcome == whole and one.rule.tier == "must")
        detail = "" if is_shown else f" {why.gate.detail}"
        show_error(SextantError(f"No decision was reached.{detail}"))
    raise typer.Exit(EXIT_CODES[whole])


def _show(verdict: Verdict, *, named: bool) -> None:
    name = f"{verdict.rule.name} ({verdict.rule.tier})" if named else "gate"
    facts = {"because": verdict.gate.detail, "session": verdict.gate.session_id}
    if verdict.reused:
        facts["session"] += ", of an earlier run for this commit"
    show_facts(f"{name}: {verdict.outcome.replace('_', ' ')}", {**facts, **verdict.steps})
