"""A run over the sites that joined: started or resumed, watched, and put down in its folder."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter, sleep
from typing import Any

from koncord._files import disk_problem
from koncord._words import counted
from koncord.aggregate.base import Aggregator
from koncord.errors import CheckpointError, ColumnsDiffer, KoncordError, StoppedOnAnswers, TooFewSites
from koncord.estimate.named import estimator_named
from koncord.network.begun import AT_THE_SITES, BegunRun
from koncord.network.flower.carrier import Carrier
from koncord.network.flower.exchange import Roll
from koncord.network.flower.link import FlowerLink
from koncord.network.method import RunRequest, identifier, statement_text
from koncord.network.places import Coordinator
from koncord.network.processes import Stopped, say
from koncord.network.runstate import (
    FINISHED,
    STOPPED,
    RunState,
    driven_by_this,
    read_state,
    run_file,
    write_state,
)
from koncord.network.watch import Watched
from koncord.report.page import page
from koncord.runs.folder import write_run
from koncord.session import federation
from koncord.session.federation import RunResult
from koncord.session.policy import ServerPolicy

LOOK_EVERY = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """A run that ended, and the names it has."""

    result: RunResult
    run: str
    identifier: str
    n_exchanges: int


def drive(
    place: Coordinator,
    begun: BegunRun,
    aggregator: Aggregator,
    *,
    estimator: Mapping[str, Any],
    request: RunRequest,
    policy: ServerPolicy,
    **arguments: Any,
) -> FinishedRun:
    """Run both phases over the sites of a run that was begun, and write its folder.

    Parameters
    ----------
    place : Coordinator
        The coordinator on this machine.
    begun : BegunRun
        The run, new or resumed.
    aggregator : Aggregator
        Phase 2.
    estimator : mapping of str to value
        Arguments of `estimator_named`.
    request : RunRequest
        What the owners of the sites are shown.
    policy : ServerPolicy
        Quorum and timeouts.
    **arguments
        Others of `koncord.session.federation.run`.

    Returns
    -------
    FinishedRun
        The result and the names of the run.
    """
    nodes = {site: node for site, node in place.sites().items() if site in begun.sites}
    stated = statement_text(aggregator, estimator, request)
    state = first_state(begun, request, stated, aggregator)
    write_state(place.folder, state)
    say(f"run {begun.run}, identifier {state.identifier}: {aggregator.name}, asked by {state.asked_by}")
    with carried(place, begun.run) as roll:
        wait_for_sites(roll, nodes, policy)
        link = Watched(
            place,
            state,
            roll,
            nodes,
            run=begun.run,
            method=stated,
            policy=policy,
            journal=begun.journal,
        )
        with noting_cause(begun, link):
            result = federation.run(
                link,
                aggregator,
                estimator=estimator_named(**estimator),
                server_policy=policy,
                started=datetime.fromisoformat(begun.started),
                **AT_THE_SITES,
                **arguments,
            )
    model, record = result.model, result.record
    write_run(begun.folder, model, record, page(model, record))
    begun.finish()
    write_state(place.folder, link.state.over(FINISHED, clusters=model.n_clusters))
    return FinishedRun(result=result, run=begun.run, identifier=state.identifier, n_exchanges=link.n_exchanges)


@contextmanager
def carried(place: Coordinator, run: str) -> Iterator[Roll]:
    """The way of the messages of a run: a run of Flower."""
    with Carrier(place) as carrier:
        say(f"Flower run {carrier.run} carries run {run}")
        yield Roll(carrier)


@contextmanager
def resumable(place: Coordinator, begun: BegunRun, again: str) -> Iterator[None]:
    """Keep, for koncord runs, why the run stopped, and say how it is resumed: by `again`."""
    try:
        with noting_problem(place, begun.run):
            yield
    except Stopped:
        say(f"stopped; go on with: {again}")
        raise KeyboardInterrupt from None
    except ColumnsDiffer:  # would differ again
        raise
    except StoppedOnAnswers as error:
        raise KoncordError(
            f"{error} It would stop at the same answers again: begin anew with another --out, and with other options "
            "or other --sites."
        ) from error
    except TooFewSites as error:
        fewer = f"; without them: {again} --min-sites {error.answered}" if error.answered else ""
        raise KoncordError(f"{error} When they answer, go on with: {again}{fewer}") from error
    except KoncordError as error:
        raise KoncordError(f"{error} Go on with: {again}") from error
    except (ValueError, TypeError, ArithmeticError) as error:  # the call itself was checked before
        raise KoncordError(f"The run failed: {error} Go on with: {again}") from error
    except OSError as error:
        raise KoncordError(f"{disk_problem(error)} When there is room, go on with: {again}") from error


@contextmanager
def noting_problem(place: Coordinator, run: str) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        path = run_file(place.folder, run)
        if path.exists():
            problem = "stopped by hand" if isinstance(error, Stopped) else str(error) or type(error).__name__
            write_state(place.folder, read_state(path).over(STOPPED, problem=problem))
        raise


@contextmanager
def noting_cause(begun: BegunRun, link: FlowerLink) -> Iterator[None]:
    """Where the run stops on answers that were taken, raise `StoppedOnAnswers`: resumed, it would stop there again."""
    try:
        yield
    except (ColumnsDiffer, CheckpointError):
        raise
    except (KoncordError, ValueError, TypeError, ArithmeticError) as error:
        if 0 < link.n_exchanges == begun.journal.n_kept:
            raise StoppedOnAnswers(str(error)) from error
        raise


def first_state(begun: BegunRun, request: RunRequest, stated: str, aggregator: Aggregator) -> RunState:
    """What is known of the run before its first exchange."""
    return driven_by_this(
        RunState(
            run=begun.run,
            identifier=identifier(stated),
            asked_by=request.by,
            purpose=request.purpose,
            aggregator=aggregator.name,
            out=str(begun.folder.resolve()),
            sites=begun.sites,
            started=begun.started,
        )
    )


def wait_for_sites(roll: Roll, nodes: Mapping[str, int | None], policy: ServerPolicy) -> None:
    """Wait for all sites to connect, and when the time is over go on if there are enough."""
    end = perf_counter() + policy.wait
    shown: Sequence[str] = ()
    while True:
        connected = roll.connected(nodes)
        away = [site for site in nodes if site not in connected]
        if away != shown:
            say(
                f"connected: {names_or_nobody([site for site in nodes if site not in away])}; "
                f"away: {names_or_nobody(away)}" + (f", waited for at most {policy.wait:g} s" if away else "")
            )
            shown = away
        if not away:
            return
        if perf_counter() > end:
            if len(nodes) - len(away) >= policy.min_sites:
                say("the run begins without those that are away; they take part when they come")
                return
            raise KoncordError(
                f"{counted(len(nodes) - len(away), 'site')} connected within {policy.wait:g} s; --min-sites asks for "
                f"{policy.min_sites} (away: {names_or_nobody(away)})."
            )
        sleep(LOOK_EVERY)


def names_or_nobody(sites: Sequence[str]) -> str:
    return ", ".join(sites) or "nobody"
