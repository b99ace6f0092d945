"""Signals that the extension sends, on blinker, with the application as the sender."""

from __future__ import annotations

from blinker import Namespace

_signals = Namespace()

#: A limit refused a request, or a dry-run limit would have. Sent with ``limiter`` and
#: ``decision``.
limit_exceeded = _signals.signal("limit-exceeded")

#: A bucket has fallen low, as its rule's ``low`` says. Sent once until it has recovered, with
#: ``limiter`` and ``outcome``.
limit_low = _signals.signal("limit-low")

#: A ban of a client begins. Sent once, by the process that refused the last request before it,
#: with ``limiter`` and ``outcome``: its ``retry_after`` is how long the ban lasts.
client_banned = _signals.signal("client-banned")

#: The store cannot be reached, and from now on the outage policy decides. Sent once an outage,
#: with ``limiter`` and ``reason``.
store_unavailable = _signals.signal("store-unavailable")

#: The store answers again. Sent with ``limiter``.
store_recovered = _signals.signal("store-recovered")
