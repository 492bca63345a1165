"""A federation that loses a site, or gets one more, without asking the others again.

The model follows from what the sites sent, so it is computed anew from the replies that are kept: without those of a
site that withdrew, or with those of one that came late. It is, to the bit, the model of a run of these sites on the
same columns and scale. These stay as they were agreed on first, for the life of the federation: the micro-clusters of
every site were made on them. So the scale still holds the sums of a site that has left; only a new run forgets these.

Which rows of a site are in which cluster is not asked again: counts by site are those of its micro-clusters.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from koncord._threads import one_thread
from koncord.aggregate.registry import aggregator_named
from koncord.errors import KoncordError
from koncord.model.globalmodel import GlobalModel
from koncord.protocol.departures import Departure
from koncord.runs.reports import Reports, digest
from koncord.session.federation import RunResult, run_federation
from koncord.session.transport import Carried, PackedLink

NO_REPLY = "it did not answer then"


class Replayed(PackedLink):
    """Link to the replies of a run that is over and, for sites that come late, to the sites themselves."""

    def __init__(self, reports: Reports, late: PackedLink | None = None) -> None:
        super().__init__([*reports.sites, *(() if late is None else late.clients)])
        self.reports = reports
        self.late = late
        self._asked = {asked for own in reports.replies.values() for asked in own}

    def carry(self, exchange: int, down: Mapping[str, Sequence[bytes]]) -> Carried:
        kept = {site: [digest(message) for message in down[site]] for site in down if site in self.reports.replies}
        for asked in kept.values():
            if not self._asked.issuperset(asked):
                raise KoncordError(
                    "This model does not follow from what the sites have sent: they would have to be asked again. "
                    "Run anew with the sites that are to take part."
                )
        replies = {
            site: [self.reports.replies[site][each] for each in asked]
            for site, asked in kept.items()
            if all(each in self.reports.replies[site] for each in asked)
        }
        live = {site: messages for site, messages in down.items() if site not in kept}
        if self.late is None or not live:
            return Carried(replies=replies, missing={site: NO_REPLY for site in kept if site not in replies})
        came = self.late.carry(exchange, live)
        return replace(
            came,
            replies={**replies, **came.replies},
            missing={**{site: NO_REPLY for site in kept if site not in replies}, **came.missing},
        )


def without(result: RunResult, site: str) -> RunResult:
    """The result of the run as if one site had not taken part, on the scale that was agreed on.

    Parameters
    ----------
    result : RunResult
        Of a run that kept its reports.
    site : str
        The site that is to be forgotten.
    """
    reports = kept_reports(result).without(site)
    model = model_of(reports)
    record = replace(
        result.record,
        departures=tuple(each for each in result.record.departures if each.site != site),
        files={name: file for name, file in result.record.files.items() if name != site},
        forgotten=(*result.record.forgotten, site),
        added=tuple(each for each in result.record.added if each != site),
        truth=None,
    )
    return RunResult(model=model, record=record, reports=reports)


def with_late(result: RunResult, late: PackedLink, *, file: str = "") -> RunResult:
    """The result of the run as if the sites of another link had taken part, on the scale that was agreed on.

    Parameters
    ----------
    result : RunResult
        Of a run that kept its reports.
    late : PackedLink
        The sites that come late; they alone are asked.
    file : str, default ""
        Where their tables are, for the record.
    """
    reports = kept_reports(result)
    both = [site for site in late.clients if site in reports.replies]
    if both:
        raise ValueError(f"'late' must hold sites that are new to the run; {', '.join(both)} took part in it.")
    link = Replayed(reports, late)
    model = model_of(reports, link)
    absent = [each for each in link.absences if each.site in late.clients]
    if absent:
        raise KoncordError(f"Site {absent[0].site!r} did not take part: {absent[0].reason}.")
    record = replace(
        result.record,
        departures=(*result.record.departures, *live_departures(link, late)),
        files={**result.record.files, **dict.fromkeys(late.clients, file)},
        forgotten=tuple(each for each in result.record.forgotten if each not in late.clients),
        added=(*result.record.added, *late.clients),
        truth=None,
    )
    more = {site: link.kept[site] for site in late.clients}
    return RunResult(model=model, record=record, reports=reports.with_replies(more))


NO_REPORTS_WITH_BUDGET = (
    "This run had a privacy budget, and kept no reports of its sites: every question after the first followed from the "
    "noisy sums of all of them, and new answers would cost their budget anew. What was released stays within the "
    "promise that was made for it; to leave a site out, run anew without it."
)


def kept_reports(result: RunResult) -> Reports:
    if result.reports is None and result.model.session.privacy:
        raise KoncordError(NO_REPORTS_WITH_BUDGET)
    if result.reports is None:
        raise KoncordError(
            "This run kept no reports of its sites: its method asks them more than once, and each question depends on "
            "all of them. Run anew with the sites that are to take part."
        )
    return result.reports


def model_of(reports: Reports, link: Replayed | None = None) -> GlobalModel:
    """The model that follows from the reports, with those of late sites if the link has some."""
    link = Replayed(reports) if link is None else link
    with one_thread():
        return run_federation(
            link,
            aggregator_named(reports.aggregator)(**reports.parameters),
            seed=reports.seed,
            standardize=False,
            settings=reports.settings,
            min_report=reports.min_report,
            min_support=reports.min_support,
            local_counts=reports.local_counts,
            agreement=reports.agreement,
            asks_holdings=() if link.late is None else link.late.clients,
        )


def live_departures(link: Replayed, late: PackedLink) -> list[Departure]:
    """What the late sites sent; the messages of the others left them long ago."""
    return [each for each in link.departures if each.site in late.clients]
