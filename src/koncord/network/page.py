"""The page to watch a coordinator by: ``python -m koncord.network.page FOLDER ADDRESS PORT``, started by koncord serve.

It reads the coordinator's folder and asks Flower who is connected, and has no way to change anything: every route is a
GET. A person comes with the token in the address once, and keeps it as a cookie; a machine sends it as a bearer token.
The page needs no script: the browser loads it again every few seconds.
"""

import hmac
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from html import escape
from http import HTTPStatus
from pathlib import Path
from secrets import token_urlsafe

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse

from koncord._files import write_atomic
from koncord._words import counted
from koncord.network.overview import NOT_KNOWN, SiteNow, sites_of
from koncord.network.places import Coordinator, now
from koncord.network.runstate import FINISHED, RUNNING, WAITING, RunState, read_states
from koncord.network.serving import is_running
from koncord.network.studies import Study, read_studies
from koncord.runs.folder import PAGE as REPORT

TOKEN, COOKIE = "page.token", "koncord"
NO_TOKEN = "The token is missing or wrong: open the address that koncord serve printed.\n"
REFRESH = 5  # seconds
OPEN = ("/health",)
# Nothing from elsewhere, and no script at all; the report of a run brings its own.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'; form-action 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
STYLE = """\
:root { color-scheme: light dark; --line: #8884; --dim: #666; --good: #226b3b; --bad: #a83a25; --wait: #805400 }
@media (prefers-color-scheme: dark) { :root { --dim: #aaa; --good: #6fc98d; --bad: #f0907c; --wait: #e0b050 } }
body { font: 16px/1.45 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.3rem } h2 { font-size: 1.1rem; margin-top: 2rem }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(17rem, 1fr)); gap: .8rem }
.card { border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem; overflow-wrap: anywhere }
.card b { font-size: 1.05rem } .dim { color: var(--dim); font-size: .88rem }
.connected, .finished { color: var(--good) } .waiting { color: var(--wait) }
.revoked, .stopped, .away { color: var(--bad) }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-size: .92rem }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
progress { width: 100% }
"""


def make_app(place: Coordinator, token: str) -> FastAPI:
    """The application: every route reads, and all but /health want the token."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)

    @app.middleware("http")
    async def guarded(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        if request.url.path not in OPEN:
            if is_token(request.query_params.get("token", ""), token) and request.url.path == "/":
                entered = RedirectResponse("/", status_code=HTTPStatus.SEE_OTHER, headers=HEADERS)
                entered.set_cookie(COOKIE, token, httponly=True, samesite="strict")
                return entered
            bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
            if not (is_token(request.cookies.get(COOKIE, ""), token) or is_token(bearer, token)):
                return PlainTextResponse(NO_TOKEN, HTTPStatus.UNAUTHORIZED, HEADERS)
        response = await call(request)
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        return response

    @app.get("/")
    def overview() -> HTMLResponse:
        studies = read_studies(place.folder)
        return HTMLResponse(overview_page(place, sites_of(place), read_states(place.folder), studies))

    @app.get("/runs/{name}")
    def run(name: str) -> Response:
        state = run_named(place, name)
        return not_there() if state is None else HTMLResponse(run_page(state))

    @app.get("/runs/{name}/report")
    def report(name: str) -> Response:
        state = run_named(place, name)
        path = None if state is None or state.state != FINISHED else Path(state.out) / REPORT
        if path is None or not path.is_file():
            return not_there()
        # The page of a run is koncord's own, and states its own policy.
        return HTMLResponse(
            path.read_text(encoding="utf-8"), headers={"Content-Security-Policy": "frame-ancestors 'none'"}
        )

    @app.get("/health")
    def health() -> JSONResponse:
        is_well = is_running(place)
        code = HTTPStatus.OK if is_well else HTTPStatus.SERVICE_UNAVAILABLE
        return JSONResponse({"status": "ok" if is_well else "Flower does not answer"}, code)

    @app.get("/metrics")
    def metrics() -> PlainTextResponse:
        text = metrics_text(is_running(place), sites_of(place), read_states(place.folder))
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    return app


def is_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())


def run_named(place: Coordinator, name: str) -> RunState | None:
    return next((state for state in read_states(place.folder) if state.run == name), None)


def not_there() -> Response:
    return PlainTextResponse("There is no such page.\n", HTTPStatus.NOT_FOUND)


# --- pages ---


def html_document(title: str, body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="refresh" content="{REFRESH}"><title>{escape(title)}</title><style>{STYLE}</style></head>'
        f"<body>{body}</body></html>"
    )


def overview_page(
    place: Coordinator, sites: Sequence[SiteNow], runs: Sequence[RunState], studies: Sequence[Study] = ()
) -> str:
    """Sites, studies, runs that go on, and runs that are over."""
    going = [state for state in runs if state.state in (RUNNING, WAITING)]
    over = [state for state in runs if state.state not in (RUNNING, WAITING)]
    n_connected = sum(site.state == "connected" for site in sites)
    at = shown_time(now())
    parts = [
        f"<h1>koncord: {escape(place.address)}</h1>",
        f'<p class="dim">{n_connected} of {len(sites)} sites connected; {at}</p>',
        "<h2>Runs that go on</h2>",
        cards(going_card(state) for state in going) or '<p class="dim">none</p>',
        "<h2>Sites</h2>",
        cards(site_card(site, runs) for site in sites) or '<p class="dim">none was invited</p>',
        *(["<h2>Studies</h2>", cards(study_card(study, runs) for study in studies)] if studies else []),
        "<h2>Runs that are over</h2>",
        cards(over_card(state) for state in over) or '<p class="dim">none</p>',
    ]
    return html_document(f"koncord: {place.address}", "".join(parts))


def cards(bodies: Iterable[str]) -> str:
    inner = "".join(f'<div class="card">{body}</div>' for body in bodies)
    return f'<div class="cards">{inner}</div>' if inner else ""


def site_card(site: SiteNow, runs: Sequence[RunState] = ()) -> str:
    lines = [
        f'<b>{escape(site.name)}</b> <span class="{escape(site.state.split()[0])}">{escape(site.state)}</span>',
        f'<span class="dim">last seen {escape(shown_time(site.last_seen))}</span>',
        f'<span class="dim">{escape(version_words(site.version))}</span>',
        f'<span class="dim">key made {escape(site.key_made or "nowhere")}</span>',
        f'<span class="dim">{escape(site.fingerprint)}</span>',
    ]
    spent = [float(state.budgets[site.name]["epsilon"]) for state in runs if site.name in state.budgets]
    if spent:
        lines.append(f'<span class="dim">budget: epsilon {sum(spent):g} in {counted(len(spent), "run")}</span>')
    if site.studies:
        lines.append(f'<span class="dim">studies: {escape(", ".join(site.studies))}</span>')
    return "<br>".join([*lines, *([f'<span class="dim">{escape(site.reason)}</span>'] if site.reason else [])])


def version_words(version: str) -> str:
    """The version of koncord that a site said it has, with its first answer."""
    return "version not known before its first answer" if version == NOT_KNOWN else f"koncord {version}"


def study_card(study: Study, runs: Sequence[RunState]) -> str:
    n_runs = sum(state.study == study.name for state in runs)
    columns = study.method.get("columns")
    lines = [
        f"<b>{escape(study.name)}</b> {escape(str(study.method.get('purpose') or ''))}",
        f"{escape(str(study.method['aggregator']))}: {escape(', '.join(study.sites))}",
        f"columns: {escape('all' if columns is None else ', '.join(columns))}",
        f'<span class="dim">identifier {escape(study.identifier)}; {counted(n_runs, "run")}; asked by '
        f"{escape(str(study.method['by']))}</span>",
    ]
    return "<br>".join(lines)


def going_card(state: RunState) -> str:
    waits = [f"waiting for {site}: {what}" for site, what in state.owners.items()]
    awaited = [site for site in state.awaited if site not in state.owners]
    lines = [
        run_heading(state),
        f"exchange {len(state.exchanges) + 1}: {escape(' + '.join(state.asked) or 'begins')}",
        *([f"answered: {escape(', '.join(state.answered) or 'nobody yet')}"] if state.asked else []),
        *([f"awaited: {escape(', '.join(awaited))}"] if awaited else []),
        *map(escape, waits),
        *([f"budget: {escape(budget_words(state))}"] if state.budgets else []),
        f'<span class="dim">{escape(asked_words(state))}</span>',
        f'<span class="dim">so far: {traffic_words(state)}</span>',
    ]
    return "<br>".join(lines)


def run_heading(state: RunState) -> str:
    return (
        f'<b><a href="/runs/{escape(state.run)}">{escape(state.run)}</a></b> '
        f'<span class="{escape(state.state)}">{escape(state.state)}</span>'
    )


def asked_words(state: RunState) -> str:
    of_study = f"study {state.study}: " if state.study else ""
    return f"{of_study}{state.aggregator}, asked by {state.asked_by}, {shown_time(state.started)}"


def traffic_words(state: RunState) -> str:
    return f"{counted(len(state.exchanges), 'exchange')}, {state.seconds:.0f} s, {state.n_bytes:,} bytes"


def budget_words(state: RunState) -> str:
    """What the run spends of each site's privacy budget."""
    return ", ".join(
        f"{site} epsilon {budget['epsilon']:g}, delta {budget['delta']:g}"
        for site, budget in sorted(state.budgets.items())
    )


def over_card(state: RunState) -> str:
    missing = ", ".join(dict.fromkeys(str(each["site"]) for each in state.missing))
    link = f' <a href="/runs/{escape(state.run)}/report">report</a>' if state.state == FINISHED else ""
    lines = [
        f"{run_heading(state)}{link}",
        "no result" if state.clusters is None else counted(state.clusters, "cluster"),
        f'<span class="dim">{escape(asked_words(state))}</span>',
        f'<span class="dim">{traffic_words(state)}' + (f"; missing: {escape(missing)}" if missing else "") + "</span>",
    ]
    return "<br>".join([*lines, *([escape(state.problem)] if state.problem and state.state == "stopped" else [])])


def run_page(state: RunState) -> str:
    """One run, exchange by exchange."""
    rows = "".join(
        f"<tr><td>{each['exchange']}</td><td>{escape(' + '.join(each['asked']))}</td>"
        f"<td>{each['seconds']:.1f}</td><td>{each['bytes']:,}</td>"
        f"<td>{escape(', '.join(each['answered']))}</td><td>{escape(absent(state, each['exchange']))}</td></tr>"
        for each in state.exchanges
    )
    facts = {
        "study": state.study,
        "identifier": state.identifier,
        "asked by": state.asked_by,
        "purpose": state.purpose,
        "method": state.aggregator,
        "sites": ", ".join(state.sites),
        "started": shown_time(state.started),
        "result": state.out,
        "clusters": "" if state.clusters is None else str(state.clusters),
        "budget spent": budget_words(state),
        "answered now": ", ".join(state.answered),
        "awaited now": ", ".join(state.awaited),
        **{f"waiting for {site}": what for site, what in state.owners.items()},
        "why it stopped": state.problem if state.state == "stopped" else "",
    }
    shown = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in facts.items() if text)
    head = "<tr><th>exchange<th>asked<th>seconds<th>bytes<th>answered<th>missing</tr>"
    report = f'<p><a href="/runs/{escape(state.run)}/report">the report</a></p>' if state.state == FINISHED else ""
    exchanges = f'<div class="scroll"><table>{head}{rows}</table></div>' if rows else '<p class="dim">none is over</p>'
    return html_document(
        f"run {state.run}",
        f'<p><a href="/">all sites and runs</a></p>'
        f'<h1>{escape(state.run)} <span class="{escape(state.state)}">{escape(state.state)}</span></h1>'
        f'{report}<div class="scroll"><table>{shown}</table></div><h2>Exchanges</h2>{exchanges}',
    )


def absent(state: RunState, exchange: int) -> str:
    return ", ".join(f"{each['site']} ({each['reason']})" for each in state.missing if each["exchange"] == exchange)


def shown_time(text: str) -> str:
    """A time as a person reads it, in the place of ISO 8601."""
    return text.replace("T", " ").replace("+00:00", " UTC")


# --- for Prometheus ---


def metrics_text(is_up: bool, sites: Sequence[SiteNow], runs: Sequence[RunState]) -> str:
    """The text format of Prometheus, version 0.0.4."""
    lines = ["# HELP koncord_up Whether Flower answers.", "# TYPE koncord_up gauge", f"koncord_up {int(is_up)}"]
    lines += ["# HELP koncord_site_connected Whether a site is connected.", "# TYPE koncord_site_connected gauge"]
    lines += [f'koncord_site_connected{{site="{label(site.name)}"}} {int(site.state == "connected")}' for site in sites]
    n_runs = {state: sum(each.state == state for each in runs) for state in (RUNNING, WAITING, FINISHED, "stopped")}
    lines += ["# HELP koncord_runs Runs by their state.", "# TYPE koncord_runs gauge"]
    lines += [f'koncord_runs{{state="{state}"}} {n}' for state, n in n_runs.items()]
    totals = {
        "exchanges": (sum(len(each.exchanges) for each in runs), "Exchanges of all runs."),
        "exchange_seconds": (round(sum(each.seconds for each in runs), 3), "Seconds of all exchanges."),
        "received_bytes": (sum(each.n_bytes for each in runs), "Bytes that sites sent in all runs."),
        "absences": (sum(len(each.missing) for each in runs), "Times that a site was missing from an exchange."),
    }
    for name, (value, what) in totals.items():
        lines += [f"# HELP koncord_{name}_total {what}", f"# TYPE koncord_{name}_total counter"]
        lines.append(f"koncord_{name}_total {value}")
    return "\n".join(lines) + "\n"


def label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


# --- as a program ---


def token_of(place: Coordinator) -> str:
    """The token of a coordinator's page, made when it is first asked for."""
    path = place.folder / TOKEN
    if not path.exists():
        write_atomic(path, token_urlsafe(32).encode(), private=True)
    return path.read_text(encoding="ascii")


def main(arguments: Sequence[str]) -> None:
    folder, address, port = arguments
    place = Coordinator.load(Path(folder))
    app = make_app(place, token_of(place))
    uvicorn.run(app, host=address, port=int(port), log_level="warning", access_log=False, server_header=False)


if __name__ == "__main__":
    main(sys.argv[1:])
