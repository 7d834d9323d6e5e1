"""Where alerts go: a webhook and e-mail, whose addresses and passwords come from the environment alone, within a bounded time."""

from __future__ import annotations

import os
import smtplib
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import parseaddr
from queue import SimpleQueue
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from lsm_core.cli.render import visible
from lsm_core.errors import InvalidOption

WEBHOOK_VARIABLE: Final = "DREDGE_ALERT_WEBHOOK"
EMAIL_VARIABLE: Final = "DREDGE_ALERT_EMAIL"
SMTP_VARIABLE: Final = "DREDGE_ALERT_SMTP"
FROM_VARIABLE: Final = "DREDGE_ALERT_FROM"
_SECONDS_A_TRY: Final = 3.0
_SECONDS: Final = 8.0
"""For a channel with all its tries, whatever the other side does: the sensors that come next wait so long at most."""
_TRIES: Final = 2
_MOST_NAMED: Final = 50


@dataclass(frozen=True)
class Alert:
    """What is told at once: lines that are new or worse, those that are over, and how many are still there."""

    warehouse: str
    new: Sequence[str] = ()
    over: Sequence[str] = ()
    standing: int = 0

    @property
    def subject(self) -> str:
        """``Dredge flights: 2 new, 1 over, 3 in all``."""
        return f"Dredge {visible(self.warehouse)}: {len(self.new)} new, {len(self.over)} over, {self.standing} in all"

    @property
    def text(self) -> str:
        """Subject and lines, the first 50 of each kind."""
        return "\n".join([self.subject, *_named("", self.new), *_named("over: ", self.over)])


def _named(before: str, lines: Sequence[str]) -> list[str]:
    more = [f"... and {len(lines) - _MOST_NAMED} more: see the newest tick of the sensor watch"]
    return [*(f"{before}{visible(line)}" for line in lines[:_MOST_NAMED]), *(more if len(lines) > _MOST_NAMED else [])]


def _chat_text(text: str) -> str:
    """Return text in which Slack finds no link and no mention: those need ``<``, ``>`` and ``&``, which Slack spells so."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Channel(Protocol):
    """A way to tell people. ``name`` is shown, and holds no secret."""

    @property
    def name(self) -> str:
        """What ticks call it."""
        ...

    def send(self, alert: Alert) -> None:
        """Tell it. Raises OSError or the like when nobody took it."""
        ...


@dataclass(frozen=True)
class Webhook:
    """A POST of JSON with the members ``text`` (which chat services show), ``warehouse``, ``new``, ``over`` and ``standing``."""

    address: str = field(repr=False)

    @property
    def name(self) -> str:
        """With the host alone: the path is the key of many such services."""
        return f"webhook at {urlsplit(self.address).hostname}"

    def send(self, alert: Alert) -> None:
        """See `Channel`. Redirects are not followed: they would lead to a place that nobody named."""
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        again = Retry(
            _TRIES - 1, status_forcelist=[429, *range(500, 600)], allowed_methods=["POST"], redirect=0, backoff_factor=0.2,
            respect_retry_after_header=False, raise_on_status=False,
        )  # fmt: skip
        content: dict[str, Any] = {
            "text": _chat_text(alert.text),
            "warehouse": alert.warehouse,
            "new": list(alert.new),
            "over": list(alert.over),
            "standing": alert.standing,
        }
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=again))
            session.mount("https://", HTTPAdapter(max_retries=again))
            try:
                with session.post(
                    self.address, json=content, timeout=_SECONDS_A_TRY, allow_redirects=False, stream=True
                ) as answer:
                    status = answer.status_code
            except requests.RequestException as error:  # its text would show the address
                raise OSError(f"nobody answered ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise OSError(f"it answered {status}")


@dataclass(frozen=True)
class Mail:
    """An e-mail through an SMTP server: ``smtps://`` speaks TLS from the start, ``smtp://`` changes to it where the server can."""

    server: str = field(repr=False)
    sender: str
    recipients: tuple[str, ...]

    @property
    def name(self) -> str:
        """With the addresses."""
        return f"e-mail to {', '.join(self.recipients)}"

    def send(self, alert: Alert) -> None:
        """See `Channel`. A password is sent over TLS alone."""
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = alert.subject, self.sender, ", ".join(self.recipients)
        message.set_content(alert.text)
        parts = urlsplit(self.server)
        secure, host = parts.scheme == "smtps", parts.hostname or "localhost"
        trusted = ssl.create_default_context()
        opened: smtplib.SMTP = (
            smtplib.SMTP_SSL(host, parts.port or 465, timeout=_SECONDS_A_TRY, context=trusted)
            if secure
            else smtplib.SMTP(host, parts.port or 25, timeout=_SECONDS_A_TRY)
        )
        with opened as server:
            server.ehlo()
            if not secure and server.has_extn("starttls"):
                server.starttls(context=trusted)
                server.ehlo()
                secure = True
            if parts.username:
                if not secure:
                    raise OSError("the server takes the password without TLS alone, and does not get it")
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(message)


def channels_from(environment: Mapping[str, str] | None = None) -> list[Channel]:
    """Return the channels that ``DREDGE_ALERT_WEBHOOK`` and ``DREDGE_ALERT_EMAIL`` (with ``DREDGE_ALERT_SMTP``, ``DREDGE_ALERT_FROM``) name.

    Raises InvalidOption naming the variable, and never its secret.
    """
    values = os.environ if environment is None else environment
    webhook, mail = (values.get(name, "").strip() for name in (WEBHOOK_VARIABLE, EMAIL_VARIABLE))
    found: list[Channel] = []
    if webhook:
        _require_address(WEBHOOK_VARIABLE, webhook, ("https", "http"))
        found.append(Webhook(webhook))
    if mail:
        server = values.get(SMTP_VARIABLE, "").strip()
        _require_address(SMTP_VARIABLE, server, ("smtp", "smtps"))
        recipients = tuple(_mailbox(EMAIL_VARIABLE, one) for one in mail.split(","))
        sender = _mailbox(FROM_VARIABLE, values.get(FROM_VARIABLE, "").strip() or recipients[0])
        found.append(Mail(server, sender, recipients))
    return found


def _require_address(variable: str, text: str, schemes: Sequence[str]) -> None:
    try:
        parts = urlsplit(text)
        fits = (
            parts.scheme in schemes
            and bool(parts.hostname)
            and parts.port != 0
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        fits = False
    if not fits:
        shown = "***" if text else ""
        raise InvalidOption(
            variable, shown, f"an address that begins with {' or '.join(f'{one}://' for one in schemes)}"
        )


def _mailbox(variable: str, text: str) -> str:
    address = parseaddr(text)[1]
    if "@" not in address.strip("@") or not text.isprintable() or address != text.strip():
        raise InvalidOption(variable, text, "e-mail addresses such as ann@example.org, parted by commas")
    return address


def deliver(channel: Channel, alert: Alert) -> str | None:
    """Send and return None, or why nobody was told: a channel that hangs is left behind after 8 s."""
    answers: SimpleQueue[str | None] = SimpleQueue()
    thread = threading.Thread(target=_send, args=(channel.send, alert, answers.put), daemon=True, name="dredge-alert")
    thread.start()
    thread.join(_SECONDS)
    return answers.get() if not thread.is_alive() else f"no answer within {_SECONDS:g} s"


def _send(send: Callable[[Alert], None], alert: Alert, put: Callable[[Any], None]) -> None:
    try:
        send(alert)
    except Exception as error:  # noqa: BLE001  (whatever a server does, the tick goes on and says it)
        put(" ".join(f"{type(error).__name__}: {error}".split())[:300])
    else:
        put(None)


__all__ = ["Alert", "Channel", "Mail", "Webhook", "channels_from", "deliver"]
