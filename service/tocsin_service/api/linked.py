"""What signed links lead to: the page of an incident, from which people act without a token, and its picture."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import parse_qs, urlencode

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import HTMLResponse, Response

from tocsin_detectors.alerts import Alert, Incident, State
from tocsin_detectors.entries import Rebaseline
from tocsin_detectors.texts import LANGUAGES, Language
from tocsin_service import pictures
from tocsin_service.access.links import PREFIX, Links, Purpose
from tocsin_service.api import acting, body, wishes
from tocsin_service.api.attention import Attention
from tocsin_service.api.context import Context, Given
from tocsin_service.api.errors import ApiError
from tocsin_service.baselines import learnt
from tocsin_service.pages import incident as incident_page
from tocsin_service.pages.markup import policy
from tocsin_service.pictures import history
from tocsin_service.pictures.curves import Curve
from tocsin_service.presentation import Presentation
from tocsin_service.store import RunSummary
from tocsin_service.words import Words

__all__ = ["router"]

router = APIRouter(include_in_schema=False)  # for people and chat programs, not for programs

LOOKS = ["GET", "HEAD"]  # neither changes anything: chat programs open links before people do
# Forms of this very page are allowed, and to say where they came from: the guard wants to know that it was here.
HEADERS = {
    "content-security-policy": policy(form_action="'self'") + "; frame-ancestors 'none'",
    "referrer-policy": "same-origin",
}


@dataclass(frozen=True, slots=True)
class Linked:
    """What a link is about, as soon as its signature is found to be good."""

    context: Context
    incident: Incident
    alerts: tuple[Alert, ...]
    summary: RunSummary

    @property
    def run(self) -> str:
        return self.incident.run

    @property
    def rules(self) -> list[str]:
        """Its own and those that fire in it: only all of them together keep it silent."""
        return sorted({self.incident.rule, *(one.rule for one in self.alerts if one.state is State.FIRING)})

    def curves(self) -> dict[str, Curve]:
        """Those of the alerts' metrics."""
        summary = self.summary
        return history.read_curves(self.context.store, self.run, self.alerts, summary.config, summary.attempt)


class Refused(Exception):  # noqa: N818 - reads as what happened
    """The link leads nowhere; the texts are phrases of :class:`Words`."""

    def __init__(self, status: int, title: str, what_to_do: str) -> None:
        super().__init__(title)
        self.status, self.title, self.what_to_do = status, title, what_to_do


def _language(request: Request, lang: Annotated[str, Query()] = "") -> Language:
    """The one asked for, else the one that the browser prefers."""
    preferred = [part.strip().lower()[:2] for part in request.headers.get("accept-language", "").split(",")]
    return next((known for one in (lang, *preferred) for known in LANGUAGES if one == known), "en")


Lang = Annotated[Language, Depends(_language)]


@router.api_route(f"{PREFIX}/incident/{{run}}/{{incident}}", methods=LOOKS)
def show_page(run: str, incident: str, request: Request, context: Given, lang: Lang, done: str = "") -> Response:
    """The page. Looking at it changes nothing."""
    try:
        linked = _open("incident", run, incident, request, context)
    except Refused as refused:
        return _refusal(refused, lang)
    return HTMLResponse(_page(linked, lang, done=done), headers=HEADERS)


@router.post(f"{PREFIX}/incident/{{run}}/{{incident}}")
async def act(run: str, incident: str, request: Request, context: Given, lang: Lang) -> Response:
    """Does what one of the page's forms asks for, and shows the page again."""
    data = await body.read(request, body.SMALL)
    try:
        linked = await asyncio.to_thread(_open, "incident", run, incident, request, context)
    except Refused as refused:
        return _refusal(refused, lang)
    try:
        given = parse_qs(data.decode(errors="replace"), max_num_fields=20)
        form = {name: values[-1] for name, values in given.items()}
        await _act(linked, form)
    except (ApiError, ValueError) as error:
        problems = _problems(error)
        shown = await asyncio.to_thread(_page, linked, lang, problems=problems)
        return HTMLResponse(shown, error.status if isinstance(error, ApiError) else 422, HEADERS)
    query = {name: value for name, value in request.query_params.items() if name in {"expires", "signature", "lang"}}
    again = urlencode({**query, "done": form.get("act", "")})
    return Response(None, 303, {"location": f"?{again}", **HEADERS})


@router.api_route(f"{PREFIX}/picture/{{run}}/{{incident}}.png", methods=LOOKS)
async def show_picture(run: str, incident: str, request: Request, context: Given) -> Response:
    """The picture, as PNG."""
    if not pictures.installed():
        raise ApiError(404, "this service can't draw; install matplotlib: pip install 'tocsin[pictures]'", "link")
    try:
        linked = await asyncio.to_thread(_open, "picture", run, incident, request, context)
    except Refused as refused:
        raise ApiError(refused.status, refused.title, "link") from None
    newest = max(one.fired_step for one in linked.alerts) + history.AFTER if linked.alerts else 0
    key = (linked.incident, min(newest, linked.summary.step or 0))  # later steps change nothing
    try:
        picture = await context.pictures.get(key, lambda: _draw(linked))
    except pictures.PicturesBusy as error:
        raise ApiError(503, f"{error}; ask again later", "pictures") from None
    return Response(picture, media_type="image/png")


def _open(purpose: Purpose, run: str, incident: str, request: Request, context: Context) -> Linked:
    """What the link is about.

    Raises:
        Refused: 403 it isn't signed by us for just this, or has expired; 404 there is nothing any more.
    """
    settings, query = context.settings, request.query_params
    links = Links.of(settings.public_url, settings.link_secret, context.clock)
    if links is None:
        raise Refused(404, "There are no links here.", "The service has no public_url and link_secret.")
    expires = query.get("expires", "")
    number = int(expires) if expires.isascii() and expires.isdigit() and len(expires) < 15 else 0
    if not links.valid(purpose, run, incident, number, query.get("signature", "")):
        raise Refused(403, "This link has expired, or a part of it is missing.", _EXPIRED)
    found, summary = context.store.incident(run, incident), context.store.run(run)
    if found is None or summary is None:
        raise Refused(404, "This incident is not known any more.", _GONE)
    return Linked(context, found[0], found[1], summary)


_GONE = "Its run is gone, or was judged anew by other rules."
_EXPIRED = (
    "Links are good for two weeks. Open the one in the latest message of the incident, or use the command: "
    "tocsin incidents, tocsin acknowledge, tocsin silence."
)


def _refusal(refused: Refused, lang: Language) -> Response:
    shown = incident_page.refusal(refused.title, refused.what_to_do, Words(lang))
    return HTMLResponse(shown, refused.status, HEADERS)


def _page(linked: Linked, lang: Language, *, done: str = "", problems: tuple[str, ...] = ()) -> str:
    context, run = linked.context, linked.run
    settings = context.settings
    links = Links.of(settings.public_url, settings.link_secret, context.clock)
    presented = Presentation(lang, settings.runbook_base, links, rollouts=settings.rollout_dir)
    attention = Attention(context, presented, run)
    (incident,) = attention.incidents([linked.incident])
    shown = incident_page.Shown(
        incident,
        attention.alerts(linked.alerts),
        linked.curves(),
        linked.rules,
        learnt(linked.alerts),
        linked.summary.config.link,
        attention.silence(linked.incident),
        done,
        problems,
        presented.view(linked.incident),
        presented.samples(linked.incident, linked.alerts),
    )
    return incident_page.page(shown, Words(lang))


def _draw(linked: Linked) -> bytes:
    settings = linked.context.settings
    shown = Presentation(pictures.spoken(settings.lang), settings.runbook_base)
    alerts = [shown.alert(one) for one in linked.alerts]
    return pictures.drawn(shown.incident(linked.incident), alerts, linked.curves(), shown.lang)


async def _act(linked: Linked, form: dict[str, str]) -> None:
    """Does what the form says.

    Raises:
        ApiError, ValueError: what is wrong with it.
    """
    context, incident = linked.context, linked.incident
    now = context.clock()
    told = {name: value for name, value in form.items() if name in {"author", "comment"}}
    match form.get("act"):
        case "acknowledge":
            acknowledgement = wishes.decode_acknowledgement(told, incident.run, incident.id, now)
            await acting.acknowledge(context, acting.LINK, acknowledgement)
        case "silence":
            hours = {str(known): known for known in incident_page.HOURS}.get(form.get("hours", ""))
            if hours is None:
                raise ValueError("choose one of the times")
            wish: dict[str, Any] = {**told, "hours": hours}
            if form.get("scope") == "run":
                await acting.add_silence(context, acting.LINK, wishes.decode_mute(wish, incident.run, now), "mute")
            else:
                for rule in linked.rules:
                    silence = wishes.decode_mute(wish, incident.run, now, rule)
                    await acting.add_silence(context, acting.LINK, silence)
        case "rebaseline":
            author, why = wishes.decode_author(told, why=True)
            if not (metrics := learnt(linked.alerts)):
                raise ValueError("nothing of it that fires can have a new normal")
            entries = [Rebaseline(one, f"{author}: {why}") for one in metrics]
            await acting.rebaseline(context, acting.LINK, incident.run, entries)
        case _:
            raise ValueError("this form is not known; open the page again")


def _problems(error: ApiError | ValueError) -> tuple[str, ...]:
    if isinstance(error, ApiError):
        return tuple(f"{one['field']}: {one['problem']}" for one in error.problems) or (error.error,)
    return (str(error),)
