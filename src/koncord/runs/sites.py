"""All sites of a run in one file: what the page shows of the largest ones only, where there are very many."""

import csv
import io
from collections import Counter

from koncord.model.globalmodel import GlobalModel
from koncord.runs.record import RunRecord

# Sites that a page has in full; of more, it shows the largest `LARGEST_SHOWN`, and a file beside it has all.
MOST_SHOWN = 200
LARGEST_SHOWN = 20


def shown_sites(model: GlobalModel) -> tuple[str, ...]:
    """The sites that a page shows, in name order: all, or those with most rows."""
    if len(model.sites) <= MOST_SHOWN:
        return model.sites
    rows = model.holdings.sum(axis=1).tolist()
    largest = sorted(range(len(model.sites)), key=lambda at: (-rows[at], at))[:LARGEST_SHOWN]
    return tuple(model.sites[at] for at in sorted(largest))


def sites_csv(model: GlobalModel, record: RunRecord) -> str:
    """One line a site: its file, its rows by cluster as it reported them, and what it sent."""
    messages, numbers, n_bytes = Counter[str](), Counter[str](), Counter[str]()
    for departed in record.departures:
        messages[departed.site] += 1
        numbers[departed.site] += departed.numbers
        n_bytes[departed.site] += departed.n_bytes
    local_counts = model.local_counts or (None,) * len(model.sites)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    heads = ("site", "file", "rows", "local_k", "messages", "numbers", "bytes")
    lines.writerow((*heads, *(f"cluster_{number}" for number in range(model.n_clusters))))
    for site, held, local_k in zip(model.sites, model.holdings.tolist(), local_counts, strict=True):
        sent = (messages[site], numbers[site], n_bytes[site])
        n_rows = sum(held) + model.session.withheld.get(site, 0)
        lines.writerow((site, record.files.get(site, ""), n_rows, "" if local_k is None else local_k, *sent, *held))
    return text.getvalue()
