"""The checks of ``flask bucket doctor`` of an application's settings: FB201 to FB204, and FB206."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from itertools import islice
from typing import Any

from flask import Flask
from werkzeug.middleware.proxy_fix import ProxyFix

from ..enforcing import Enforcer
from ..errors import StoreUnavailable
from ..keys import KeyParts
from ..moving import leftovers
from ..stores.redis.inspection import RedisServer
from .findings import Finding

#: Buckets whose clients are read.
_SAMPLE = 1000

#: Networks of proxies. Clients of a public service have other addresses.
_INTERNAL = tuple(
    ip_network(text)
    for text in (
        "127.0.0.0/8",
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "::1/128",
        "fc00::/7",
        "fe80::/10",
    )
)


def setting_checks(state: Enforcer, server: RedisServer | None, workers: int) -> Iterator[Finding]:
    """Check the settings of one Limiter."""
    if server is None:
        yield _in_process(workers)
    if not state.config.enabled:
        yield Finding(
            "FB203",
            "warning",
            "BUCKET_ENABLED is False, so no limit is enforced.",
            "Set it to True.",
        )
    if state.config.dry_run:
        yield Finding(
            "FB204",
            "note",
            "BUCKET_DRY_RUN is True, so limits report what they would refuse, and refuse nothing.",
            "Set it to False when the reports look right.",
        )


def _in_process(workers: int) -> Finding:
    advice = "Set BUCKET_REDIS_URL (FLASK_BUCKET_REDIS_URL in the environment)."
    if workers > 1:
        return Finding(
            "FB201",
            "error",
            f"Each process keeps its own buckets, so {workers} workers grant every limit "
            f"{workers} times.",
            advice,
        )
    return Finding(
        "FB201",
        "warning",
        "Each process keeps its own buckets. That is right for development and a single worker.",
        "With several workers, each would grant every limit again. A restart fills all buckets. "
        f"{advice}",
    )


def workers_in(environment: Mapping[str, str]) -> int:
    """Return the number of gunicorn workers that the environment asks for, or 1."""
    arguments = environment.get("GUNICORN_CMD_ARGS", "")
    told = re.search(r"(?:^|\s)(?:-w|--workers)[\s=]*(\d+)", arguments)
    text = told[1] if told else environment.get("WEB_CONCURRENCY", "")
    return int(text) if text.isascii() and text.isdecimal() else 1


def proxy_checks(
    app: Flask, servers: Mapping[str, RedisServer | None], behind_proxy: bool
) -> Iterator[Finding]:
    """Check whether clients seem to be limited by the address of a proxy."""
    if has_proxy_fix(app):
        return
    advice = (
        "Apply werkzeug.middleware.proxy_fix.ProxyFix with the number of proxies. It takes the "
        "client's address from X-Forwarded-For. Without it, all clients share the proxy's buckets."
    )
    if behind_proxy:
        what = "The application is behind a proxy, and ProxyFix is not applied."
        yield Finding("FB202", "error", what, advice)
        return
    for name, server in servers.items():
        addresses = _addresses(server) if server is not None else set()
        if addresses and all(map(_is_internal, addresses)):
            some = ", ".join(sorted(map(str, addresses))[:3])
            what = f"All clients have internal addresses ({some}), and ProxyFix is not applied."
            yield Finding(
                "FB202", "warning", what, f"If the application is behind a proxy: {advice}", name
            )


def has_proxy_fix(app: Flask) -> bool:
    """Return whether ProxyFix is among the middleware around the application."""
    layer: Any = app.wsgi_app
    for _ in range(100):
        if layer is None or isinstance(layer, ProxyFix):
            break
        inner = (getattr(layer, name, None) for name in ("app", "wsgi_app", "application"))
        layer = next((found for found in inner if found is not None), None)
    return isinstance(layer, ProxyFix)


def _is_internal(address: IPv4Address | IPv6Address) -> bool:
    return any(address.version == net.version and address in net for net in _INTERNAL)


def _addresses(server: RedisServer) -> set[IPv4Address | IPv6Address]:
    """Return the clients of some buckets that are IP addresses."""
    addresses = set()
    try:
        for found in islice(server.buckets(), _SAMPLE):
            parts = KeyParts.of(found.key)
            try:
                addresses.add(
                    ip_address(parts.readable().client.partition("/")[0] if parts else "")
                )
            except ValueError:
                continue  # a user, or a digest
    except StoreUnavailable:
        return set()  # another check has reported it
    return addresses


def leftover_checks(app: Flask) -> Iterator[Finding]:
    """Check the configuration for forgotten keys of Flask-Limiter."""
    found = leftovers(app.config, app.extensions)
    if found:
        yield Finding(
            "FB206",
            "warning",
            f"Keys of Flask-Limiter are not read: {', '.join(found)}.",
            f"Here, {'; '.join(f'for {key}, {instead}' for key, instead in found.items())}.",
        )
