"""``scripts/sim``: seeds by the thousand, or one of them again."""

from __future__ import annotations

import difflib
import json
import signal
import sys
from pathlib import Path

import click

from paceline_cluster.sim.oracle import Violation
from paceline_cluster.sim.plan import Plan
from paceline_cluster.sim.run import Verdict, run
from paceline_cluster.sim.seed_sweep import SeedSweep, jobs_of, summary
from paceline_cluster.sim.shrink import shrink
from paceline_cluster.sim.simulators import NODE, TIERS, Result, plan_of, profiles_of, run_seed

_LINES = 200


@click.command(name="sim")
@click.option("--tier", type=click.Choice(TIERS), default=NODE, show_default=True)
@click.option("--profile", "profiles", multiple=True, help="Only these profiles; repeatable.")
@click.option("--seeds", type=int, help="How many seeds that have not run yet.")
@click.option(
    "--seconds", type=click.FloatRange(min=1), help="Of faults, in whole nodes; tests take 6."
)
@click.option("--minutes", type=float, help="Begin no seed later than this.")
@click.option("--jobs", "workers", type=int, default=2, show_default=True, help="Processes.")
@click.option("--first", type=int, default=0, show_default=True, help="Where seeds begin.")
@click.option(
    "--results",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("sim-results.jsonl"),
    show_default=True,
    help="One line a seed; what it holds is not run again.",
)
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), help="JSON summary.")
@click.option("--replay", type=int, help="Run one seed of one profile and show what happened.")
@click.option("--shrink", "smaller", is_flag=True, help="With --replay: find a smaller failure.")
@click.option("--lines", type=int, default=_LINES, show_default=True, help="Of the timeline.")
@click.option(
    "--trace",
    "traces",
    nargs=3,
    type=str,
    multiple=True,
    hidden=True,
    help="TIER PROFILE SEED: its checksum.",
)
def main(
    tier: str,
    profiles: tuple[str, ...],
    seeds: int | None,
    seconds: float | None,
    minutes: float | None,
    workers: int,
    first: int,
    results: Path,
    report: Path | None,
    replay: int | None,
    smaller: bool,
    lines: int,
    traces: tuple[tuple[str, str, str], ...],
) -> None:
    """Simulate clusters from seeds. Exit code 1: an invariant was broken."""
    if traces:
        for name, profile, seed in traces:
            click.echo(run_seed(name, profile, int(seed)).trace)
        return
    for name in profiles:
        _check_profile(tier, name)
    if seconds is not None:
        if tier != NODE:
            raise click.UsageError("--seconds is for whole nodes")
        profiles = tuple(f"{name}@{seconds:g}" for name in profiles or profiles_of(NODE))
    if replay is not None:
        _replay(tier, profiles, replay, smaller=smaller, lines=lines)
        return
    if seeds is None and minutes is None:
        raise click.UsageError("say how many: --seeds N or --minutes M (or --replay SEED)")
    batch = SeedSweep(
        jobs_of(tier, profiles, first),
        workers,
        results,
        minutes=minutes,
        seeds=seeds,
        renew_after=25 if tier == NODE else 1000,
        say=_say,
    )
    # Ctrl-C ends it at once, as any other signal does, not when the seeds under way are done.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    told = summary(batch.run())
    text = json.dumps(told, indent=2)
    if report is not None:
        report.write_text(text + "\n", encoding="utf-8")
    click.echo(text)
    if told["failing"]:
        sys.exit(1)


def _check_profile(tier: str, profile: str) -> None:
    """Raise UsageError unless the tier has such a profile; those of whole nodes may say for how
    many seconds (``mixed@6``)."""
    name, at, seconds = profile.partition("@")
    known = profiles_of(tier)
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        told = f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"
        raise click.BadParameter(f"tier {tier} has no profile {name!r}; {told}")
    if not at:
        return
    try:
        is_time = tier == NODE and float(seconds) > 0
    except ValueError:
        is_time = False
    if not is_time:
        raise click.BadParameter(
            f"{profile!r}: expected a number of seconds after @, of tier {NODE}"
        )


def _say(result: Result) -> None:
    outcome = "ok" if result.violation is None else f"FAILS {result.violation}"
    click.echo(
        f"{result.tier} {result.profile} {result.seed}: {outcome} "
        f"({result.virtual_s:.0f} s in {result.cpu_s:.1f} s, {result.acknowledged} acknowledged, "
        f"{result.faults} faults)",
        err=True,
    )


def _replay(tier: str, profiles: tuple[str, ...], seed: int, *, smaller: bool, lines: int) -> None:
    if len(profiles) != 1:
        raise click.UsageError("--replay needs one --profile")
    if tier != NODE:
        result = run_seed(tier, profiles[0], seed)
        _say(result)
        sys.exit(result.violation is not None)
    plan = plan_of(profiles[0], seed)
    verdict = run(plan)
    if verdict.violation is not None and smaller:
        shrunk = shrink(plan, verdict.violation, _violation_of)
        click.echo(f"shrunk in {shrunk.runs} runs to {_described(shrunk.plan)}\n", err=True)
        verdict = run(shrunk.plan)
    _show(verdict, lines)
    sys.exit(verdict.violation is not None)


def _violation_of(plan: Plan) -> Violation | None:
    return run(plan).violation


def _described(plan: Plan) -> str:
    faults = ", ".join(f"{fault.at_s:.2f} {fault.kind}" for fault in plan.faults) or "no faults"
    return f"{plan.nodes} nodes, {plan.writers} writers, {plan.seconds:.1f} s: {faults}"


def _show(verdict: Verdict, lines: int) -> None:
    plan = verdict.plan
    click.echo(f"seed {plan.seed}, profile {plan.profile}: {_described(plan)}")
    for line in verdict.timeline.lines(lines):
        click.echo(line)
    click.echo(str(verdict.violation or "all invariants hold"))
    click.echo(
        f"again: scripts/sim --profile {plan.profile} --seconds {plan.seconds:g}"
        f" --replay {plan.seed}; trace {verdict.trace:x}"
    )


if __name__ == "__main__":
    main()
