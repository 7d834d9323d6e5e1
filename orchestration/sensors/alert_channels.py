"""Alert channels: a webhook and e-mail, configured by environment variables only, within a bounded time."""

from __future__ import annotations

import os
import smtplib
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import parseaddr
from html import escape
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
"""Most time for a channel with all tries, because Dagster's daemon evaluates the next sensor only afterwards."""
_TRIES: Final = 2
_MOST_NAMED: Final = 50


@dataclass(frozen=True)
class Alert:
    """Content of one alert message.

    Attributes:
        warehouse: name of the warehouse.
        new: lines of findings that are new or have a new severity.
        over: keys of findings that have ended.
        standing: number of all current findings that raise alerts, new and earlier.
    """

    warehouse: str
    new: Sequence[str] = ()
    over: Sequence[str] = ()
    standing: int = 0

    @property
    def subject(self) -> str:
        """Subject line, like ``Dredge flights: 2 new, 1 over, 3 in all``."""
        return f"Dredge {visible(self.warehouse)}: {len(self.new)} new, {len(self.over)} over, {self.standing} in all"

    @property
    def text(self) -> str:
        """Text of the message: the subject and the lines, at most 50 new and 50 ended findings."""
        return "\n".join([self.subject, *_list_lines("", self.new), *_list_lines("over: ", self.over)])


def _list_lines(before: str, lines: Sequence[str]) -> list[str]:
    overflow = [f"... and {len(lines) - _MOST_NAMED} more: see the newest tick of the sensor watch"]
    return [
        *(f"{before}{visible(line)}" for line in lines[:_MOST_NAMED]),
        *(overflow if len(lines) > _MOST_NAMED else []),
    ]


class Channel(Protocol):
    """Channel to send alerts; the `name` is shown and contains no secret."""

    @property
    def name(self) -> str:
        """Name of the channel for ticks."""
        ...

    def send(self, alert: Alert) -> None:
        """Send an alert. Raises an exception, such as OSError, if the receiver did not accept the alert."""
        ...


@dataclass(frozen=True)
class Webhook:
    """POST of a JSON object with ``text`` (for chat services), ``warehouse``, ``new``, ``over`` and ``standing``.

    Attributes:
        address: URL of the webhook; its path may be a secret.
    """

    address: str = field(repr=False)

    @property
    def name(self) -> str:
        """Name of the channel, with the address's host only: for many chat services, the path is a secret."""
        return f"webhook at {urlsplit(self.address).hostname}"

    def send(self, alert: Alert) -> None:
        """Send an alert. Raises OSError if the webhook does not answer with a status 200 to 299.

        Redirects are not followed, because a redirect could lead to a host that is not configured.
        """
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        retries = Retry(
            _TRIES - 1, status_forcelist=[429, *range(500, 600)], allowed_methods=["POST"], redirect=0,
            backoff_factor=0.2,
            respect_retry_after_header=False, raise_on_status=False,
        )  # fmt: skip
        content: dict[str, Any] = {
            "text": escape(alert.text, quote=False),  # else Slack would find links and mentions in the text
            "warehouse": alert.warehouse,
            "new": list(alert.new),
            "over": list(alert.over),
            "standing": alert.standing,
        }
        with requests.Session() as session:
            session.mount("http://", HTTPAdapter(max_retries=retries))
            session.mount("https://", HTTPAdapter(max_retries=retries))
            try:
                with session.post(
                    self.address, json=content, timeout=_SECONDS_A_TRY, allow_redirects=False, stream=True
                ) as answer:
                    status = answer.status_code
            except requests.RequestException as error:  # the text of the error contains the secret address
                raise OSError(f"no answer from the webhook ({type(error).__name__})") from None
        if not 200 <= status < 300:
            raise OSError(f"the webhook answered with status {status}")


@dataclass(frozen=True)
class Mail:
    """E-mail through an SMTP server.

    ``smtps://`` uses TLS from the start; ``smtp://`` switches to TLS if the server supports it.

    Attributes:
        server: address of the server, which may contain a password.
        sender: e-mail address of the sender.
        recipients: e-mail addresses of the recipients.
    """

    server: str = field(repr=False)
    sender: str
    recipients: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the channel with the addresses of the recipients."""
        return f"e-mail to {', '.join(self.recipients)}"

    def send(self, alert: Alert) -> None:
        """Send an alert. The password is sent only over TLS.

        Raises:
            OSError: the server does not answer or refuses the message, or offers no TLS for the password.
        """
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = alert.subject, self.sender, ", ".join(self.recipients)
        message.set_content(alert.text)
        parts = urlsplit(self.server)
        secure, host = parts.scheme == "smtps", parts.hostname or "localhost"
        trusted = ssl.create_default_context()
        connection: smtplib.SMTP = (
            smtplib.SMTP_SSL(host, parts.port or 465, timeout=_SECONDS_A_TRY, context=trusted)
            if secure
            else smtplib.SMTP(host, parts.port or 25, timeout=_SECONDS_A_TRY)
        )
        with connection as server:
            server.ehlo()
            if not secure and server.has_extn("starttls"):
                server.starttls(context=trusted)
                server.ehlo()
                secure = True
            if parts.username:
                if not secure:
                    raise OSError("the server offers no TLS, so the password is not sent: use smtps:// or a TLS server")
                server.login(unquote(parts.username), unquote(parts.password or ""))
            server.send_message(message)


def channels_from(environment: Mapping[str, str] | None = None) -> list[Channel]:
    """Return the alert channels that the environment configures.

    Webhooks come from ``DREDGE_ALERT_WEBHOOK``, e-mail from ``DREDGE_ALERT_EMAIL`` with ``DREDGE_ALERT_SMTP`` and
    ``DREDGE_ALERT_FROM``.

    Args:
        environment: variables, or None for those of this process.

    Raises:
        InvalidOption: a value is invalid; the message names the variable, without secrets.
    """
    values = os.environ if environment is None else environment
    webhook, mail = (values.get(name, "").strip() for name in (WEBHOOK_VARIABLE, EMAIL_VARIABLE))
    channels: list[Channel] = []
    if webhook:
        _require_address(WEBHOOK_VARIABLE, webhook, ("https", "http"))
        channels.append(Webhook(webhook))
    if mail:
        server = values.get(SMTP_VARIABLE, "").strip()
        _require_address(SMTP_VARIABLE, server, ("smtp", "smtps"))
        recipients = tuple(_mailbox(EMAIL_VARIABLE, address) for address in mail.split(","))
        sender = _mailbox(FROM_VARIABLE, values.get(FROM_VARIABLE, "").strip() or recipients[0])
        channels.append(Mail(server, sender, recipients))
    return channels


def _require_address(variable: str, text: str, schemes: Sequence[str]) -> None:
    try:
        parts = urlsplit(text)
        is_valid = (
            parts.scheme in schemes
            and bool(parts.hostname)
            and parts.port != 0
            and text.isprintable()
            and " " not in text
        )
    except ValueError:
        is_valid = False
    if not is_valid:
        shown = "***" if text else ""
        raise InvalidOption(
            variable, shown, f"an address that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}"
        )


def _mailbox(variable: str, text: str) -> str:
    address = parseaddr(text)[1]
    if "@" not in address.strip("@") or not text.isprintable() or address != text.strip():
        raise InvalidOption(variable, text, "e-mail addresses like ann@example.org, separated by commas")
    return address


def deliver(channel: Channel, alert: Alert) -> str | None:
    """Send an alert within 8 s.

    Returns:
        None if the alert was sent, else why it was not sent. After 8 s without a result, the alert counts as not sent.
    """
    answers: SimpleQueue[str | None] = SimpleQueue()
    thread = threading.Thread(target=_send, args=(channel.send, alert, answers.put), daemon=True, name="dredge-alert")
    thread.start()
    thread.join(_SECONDS)
    return answers.get() if not thread.is_alive() else f"no answer within {_SECONDS:g} s"


def _send(send: Callable[[Alert], None], alert: Alert, put: Callable[[Any], None]) -> None:
    try:
        send(alert)
    except Exception as error:  # noqa: BLE001  (a failing server must not stop the tick)
        put(" ".join(f"{type(error).__name__}: {error}".split())[:300])
    else:
        put(None)
