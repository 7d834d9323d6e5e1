"""Alert channels: webhooks, Slack and e-mail; their addresses come from environment variables only."""

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
from typing import Any, ClassVar, Final, Protocol
from urllib.parse import unquote, urlsplit

from lsm_core.cli.render import visible
from lsm_core.errors import InvalidOption

WEBHOOK_VARIABLE: Final = "DREDGE_ALERT_WEBHOOK"
EMAIL_VARIABLE: Final = "DREDGE_ALERT_EMAIL"
SMTP_VARIABLE: Final = "DREDGE_ALERT_SMTP"
FROM_VARIABLE: Final = "DREDGE_ALERT_FROM"
SLACK_VARIABLE: Final = "DREDGE_ALERT_SLACK"
_SECONDS_A_TRY: Final = 3.0
_SECONDS: Final = 8.0
"""Most seconds for sending to a channel with all tries; Dagster's daemon evaluates the next sensor only afterwards."""
_TRIES: Final = 2
_MOST_NAMED: Final = 50
_SLACK_BLOCKS: Final = 50
_SLACK_HEADER: Final = 150
_SLACK_SECTION: Final = 3_000
_SLACK_LINE: Final = 600
"""Limits of Slack's blocks, and most characters of one line in them."""


@dataclass(frozen=True)
class AlertItem:
    """One entry of an alert message: findings (problems of tables, sensors or files) that have the same cause.

    Attributes:
        line: text of the entry, one line.
        severity: severity of the findings.
        condition: kind of problem that the findings are about.
        owners: owners of the tables.
        tables: names of the first tables (or sensors, files) that the findings are about.
        count: number of findings.
        links: links by label: the page of the table, the failed run, the section of the runbook.
    """

    line: str
    severity: str = ""
    condition: str = ""
    owners: Sequence[str] = ()
    tables: Sequence[str] = ()
    count: int = 1
    links: Mapping[str, str] = field(default_factory=dict)

    @property
    def heading(self) -> str:
        """Severity and owners, by which a message groups its lines."""
        return ", ".join(part for part in (self.severity.upper(), *map(visible, self.owners)) if part)


@dataclass(frozen=True)
class Alert:
    """Content of one alert message.

    Attributes:
        warehouse: name of the warehouse.
        new: lines of causes that are new or have a new severity.
        over: lines of findings that have ended.
        standing: number of all current findings that raise alerts, new and earlier.
        items: the causes of `new` with their links, in the same order; empty if nothing but the lines is known.
        acknowledged: lines about persons who work on causes.
        message_id: id of the message, the same if the message is sent again; "" for none.
    """

    warehouse: str
    new: Sequence[str] = ()
    over: Sequence[str] = ()
    standing: int = 0
    items: Sequence[AlertItem] = ()
    acknowledged: Sequence[str] = ()
    message_id: str = ""

    @property
    def subject(self) -> str:
        """Subject line, like ``Dredge flights: 2 new, 1 over, 3 in all``."""
        return f"Dredge {visible(self.warehouse)}: {len(self.new)} new, {len(self.over)} over, {self.standing} in all"

    @property
    def text(self) -> str:
        """Text of the message: the subject and the lines, at most 50 new and 50 ended findings."""
        return "\n".join(
            [
                self.subject,
                *self._new_lines(),
                *_list_lines("over: ", self.over),
                *_list_lines("acknowledged: ", self.acknowledged),
            ]
        )

    def _new_lines(self) -> list[str]:
        if not self.items:
            return _list_lines("", self.new)
        lines: list[str] = []
        heading = ""
        for item in self.items[:_MOST_NAMED]:
            if item.heading != heading:
                heading = item.heading
                lines.append(f"{heading}:")
            lines.append(f"- {visible(item.line)}")
            lines += [f"  {label}: {address}" for label, address in item.links.items()]
        return [*lines, *_overflow_lines(self.items)]


def _list_lines(before: str, lines: Sequence[str]) -> list[str]:
    return [*(f"{before}{visible(line)}" for line in lines[:_MOST_NAMED]), *_overflow_lines(lines)]


def _overflow_lines(lines: Sequence[object]) -> list[str]:
    more = len(lines) - _MOST_NAMED
    return [f"... and {more} more: see the newest tick of the sensor watch"] if more > 0 else []


def slack_blocks(alert: Alert) -> list[dict[str, Any]]:
    """Return the blocks of a Slack message: a header, sections per severity and owners, ended and acknowledged alerts.

    Slack accepts 50 blocks and 3,000 characters per section. Untrusted text is escaped, so that it cannot contain links
    and mentions.
    """
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": alert.subject[:_SLACK_HEADER], "emoji": False}}
    ]
    sections: dict[str, list[str]] = {}
    for item in alert.items[:_MOST_NAMED] or [AlertItem(line) for line in alert.new[:_MOST_NAMED]]:
        links = " · ".join(
            f"<{escape(address, quote=False)}|{label}>" if address.startswith("http") else escape(address, quote=False)
            for label, address in item.links.items()
        )
        line = f"• {_slack_text(item.line)}{f'  ({links})' if links else ''}"
        sections.setdefault(item.heading, []).append(line)
    more = _overflow_lines(alert.items or alert.new)
    if more:
        sections.setdefault("", []).append(_slack_text(more[0]))
    for title, lines in (("Over", alert.over), ("Acknowledged", alert.acknowledged)):
        if lines:
            sections[title] = [
                *(f"• {_slack_text(line)}" for line in lines[:_MOST_NAMED]),
                *map(_slack_text, _overflow_lines(lines)),
            ]
    for title, lines in sections.items():
        for text in _slack_chunks([*([f"*{_slack_text(title)}*"] if title else []), *lines]):
            blocks.append({"type": "section", "text": {"type": "mrkdwn", "text": text}})
    if len(blocks) > _SLACK_BLOCKS:
        left_out = {"type": "mrkdwn", "text": "The rest is in the newest tick of the sensor watch."}
        blocks = [*blocks[: _SLACK_BLOCKS - 1], {"type": "section", "text": left_out}]
    return blocks


def _slack_text(text: str) -> str:
    return escape(visible(text)[:_SLACK_LINE], quote=False).replace("*", "\u2217").replace("`", "'")


def _slack_chunks(lines: Sequence[str]) -> list[str]:
    """Join lines to texts of at most 3,000 characters."""
    chunks: list[str] = []
    for line in lines:
        if chunks and len(chunks[-1]) + len(line) < _SLACK_SECTION:
            chunks[-1] += f"\n{line}"
        else:
            chunks.append(line[:_SLACK_SECTION])
    return chunks


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
class _HttpChannel:
    """Channel that posts to one address.

    Attributes:
        service: name of the service, for people.
        address: URL to which alerts are posted; its path may be a secret.
        label: name of the channel in the policy file, or "" for the channel of the environment.
    """

    service: ClassVar[str]
    address: str = field(repr=False)
    label: str = ""

    @property
    def name(self) -> str:
        """Name of the channel, with the address's host only: for many chat services, the path is a secret."""
        return _labelled(self.label, f"{self.service} at {urlsplit(self.address).hostname}")


@dataclass(frozen=True)
class Webhook(_HttpChannel):
    """POST of a JSON object with ``text`` (for chat services), ``warehouse``, ``new``, ``over``, ``standing``.

    ``causes`` repeats ``new`` with severity, condition, owners, first tables, number and links, and ``acknowledged``
    has a line per person who works on a cause. ``id`` and the header ``Idempotency-Key`` are the same for a message
    that is sent again, because its answer was lost.
    """

    service: ClassVar[str] = "webhook"

    def send(self, alert: Alert) -> None:
        """Send an alert. Raises OSError if the webhook does not answer with a status 200 to 299.

        Redirects are not followed, because a redirect could lead to a host that is not configured.
        """
        content: dict[str, Any] = {
            "id": alert.message_id,
            "text": escape(alert.text, quote=False),  # else Slack would find links and mentions in the text
            "warehouse": alert.warehouse,
            "new": list(alert.new),
            "over": list(alert.over),
            "standing": alert.standing,
            "acknowledged": list(alert.acknowledged),
            "causes": [
                {
                    "severity": item.severity,
                    "condition": item.condition,
                    "owners": list(item.owners),
                    "tables": list(item.tables),
                    "count": item.count,
                    "text": item.line,
                    "links": dict(item.links),
                }
                for item in alert.items
            ],
        }
        _post(self.address, content, alert.message_id)


@dataclass(frozen=True)
class Slack(_HttpChannel):
    """Message with blocks for an incoming webhook of Slack, whose address is a secret."""

    service: ClassVar[str] = "Slack"

    def send(self, alert: Alert) -> None:
        """Send an alert. Raises OSError if the webhook does not answer with a status 200 to 299."""
        content = {"text": escape(alert.subject, quote=False), "blocks": slack_blocks(alert)}
        _post(self.address, content, alert.message_id)


def _labelled(label: str, text: str) -> str:
    return f"{label} ({text})" if label else text


def _post(address: str, content: Mapping[str, Any], message_id: str) -> None:
    """Post JSON to an address, with one retry.

    Args:
        address: URL of the receiver; its path may be a secret.
        content: object to send.
        message_id: id by which the receiver knows a message that it has already, or "".

    Raises:
        OSError: the receiver does not answer, or with a status other than 200 to 299.
    """
    import requests
    from requests.adapters import HTTPAdapter
    from urllib3.util import Retry

    retries = Retry(
        _TRIES - 1, status_forcelist=[429, *range(500, 600)], allowed_methods=["POST"], redirect=0,
        backoff_factor=0.2,
        respect_retry_after_header=False, raise_on_status=False,
    )  # fmt: skip
    with requests.Session() as session:
        session.mount("http://", HTTPAdapter(max_retries=retries))
        session.mount("https://", HTTPAdapter(max_retries=retries))
        try:
            with session.post(
                address,
                json=content,
                headers={"Idempotency-Key": message_id} if message_id else None,
                timeout=_SECONDS_A_TRY,
                allow_redirects=False,
                stream=True,
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
        label: name of the channel in the policy file, or "" for the channel of the environment.
    """

    server: str = field(repr=False)
    sender: str
    recipients: tuple[str, ...]
    label: str = ""

    @property
    def name(self) -> str:
        """Name of the channel with the addresses of the recipients."""
        return _labelled(self.label, f"e-mail to {', '.join(self.recipients)}")

    def send(self, alert: Alert) -> None:
        """Send an alert. The password is sent only over TLS.

        Raises:
            OSError: the server does not answer or refuses the message, or offers no TLS for the password.
        """
        message = EmailMessage()
        message["Subject"], message["From"], message["To"] = alert.subject, self.sender, ", ".join(self.recipients)
        if alert.message_id:
            message["Message-ID"] = f"<{alert.message_id}@{self.sender.rpartition('@')[2]}>"
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
    """Return the alert channels that the environment alone configures.

    Webhooks come from ``DREDGE_ALERT_WEBHOOK``, Slack from ``DREDGE_ALERT_SLACK``, e-mail from ``DREDGE_ALERT_EMAIL``
    with ``DREDGE_ALERT_SMTP`` and ``DREDGE_ALERT_FROM``.

    Args:
        environment: variables, or None for those of this process.

    Raises:
        InvalidOption: a value is invalid; the message names the variable, without secrets.
    """
    return list(default_channels(os.environ if environment is None else environment).values())


def default_channels(values: Mapping[str, str]) -> dict[str, Channel]:
    """Return the alert channels that environment variables alone configure, by "webhook", "slack" or "email".

    The alert routes of the policy file (rules that send alerts to channels) refer to the channels by these names.

    Args:
        values: environment variables.

    Raises:
        InvalidOption: a value is invalid; the message names the variable, without secrets.
    """
    variables = {"webhook": WEBHOOK_VARIABLE, "slack": SLACK_VARIABLE, "email": EMAIL_VARIABLE}
    return {
        kind: make_channel(kind, variable, values)
        for kind, variable in variables.items()
        if values.get(variable, "").strip()
    }


def make_channel(kind: str, variable: str, values: Mapping[str, str], label: str = "") -> Channel:
    """Create an alert channel whose address or recipients come from an environment variable.

    Args:
        kind: "webhook", "slack" or "email".
        variable: environment variable with the address or the recipients.
        values: environment variables.
        label: name of the channel in the policy file, or "".

    Raises:
        InvalidOption: a value is missing or invalid; the message names the variable, without secrets.
    """
    text = values.get(variable, "").strip()
    if kind != "email":
        _require_address(variable, text, ("https", "http"))
        return Slack(text, label) if kind == "slack" else Webhook(text, label)
    server = values.get(SMTP_VARIABLE, "").strip()
    _require_address(SMTP_VARIABLE, server, ("smtp", "smtps"))
    recipients = tuple(_mailbox(variable, address) for address in text.split(","))
    sender = _mailbox(FROM_VARIABLE, values.get(FROM_VARIABLE, "").strip() or recipients[0])
    return Mail(server, sender, recipients, label)


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
