"""OpenAPI: adds limits to the specification of an API."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from .at_once import AtOnce
from .bound import BoundRule
from .enforcing import Enforcer
from .errors import ConfigError
from .headers import Headers, examples

#: A specification, or a part of it.
Spec = dict[str, Any]

_METHODS = ("get", "put", "post", "delete", "head", "patch", "trace")

_ABOUT = {
    "Retry-After": "Seconds to wait before the next request.",
    "X-RateLimit-Limit": "The tokens that the bucket holds when it is full.",
    "X-RateLimit-Remaining": "The whole tokens that are left in the bucket.",
    "X-RateLimit-Reset": "The Unix time at which the bucket is full.",
}


def describe(enforcer: Enforcer, spec: Spec) -> Spec:
    """Add 429 and the rate headers to each limited operation of a specification.

    :param spec: is changed, and returned.
    :raises ConfigError: if it is not a specification as a dictionary.
    """
    _checked(spec)
    chosen = enforcer.config.headers
    refused = _described(examples(chosen, refused=True), spec)
    allowed = _described(examples(chosen, refused=False), spec)
    for operation, has_rates in _limited(enforcer, spec):
        responses = operation.setdefault("responses", {})
        number = next((key for key in responses if str(key) == "429"), "429")
        refusal = responses.setdefault(number, {"description": "Too many requests."})
        _add(refused, refusal)
        for status, response in responses.items():
            if has_rates and str(status).startswith("2"):
                _add(allowed, response)
    return spec


def _checked(spec: object) -> None:
    """Check the parts of a specification that are read or changed, before any is changed.

    :raises ConfigError: for the first one that is not what it should be.
    """
    if not isinstance(spec, dict) or not isinstance(spec.get("paths"), dict):
        raise ConfigError(
            f"openapi() takes a specification as a dictionary with paths, not {spec!r:.200}. "
            "Most libraries have a method for that, such as spec.to_dict()."
        )
    _text(spec.get("basePath", ""), "basePath")
    servers = spec.get("servers") or []
    if not isinstance(servers, list):
        raise _wrong(servers, "servers", "a list")
    for n, server in enumerate(servers):
        _text(_dictionary(server, f"servers[{n}]").get("url", ""), f"the url of servers[{n}]")
    for path, item in _paths(spec):
        _dictionary(item, f"the path {path!r}")
        for method in _METHODS:
            if method in item:
                _check_operation(item[method], f"{method} of the path {path!r}")


def _check_operation(operation: object, place: str) -> None:
    responses = _dictionary(operation, place).get("responses", {})
    for status, response in _dictionary(responses, f"the responses of {place}").items():
        if not str(status).startswith("x-"):
            told = _dictionary(response, f"the response {status} of {place}")
            _dictionary(told.get("headers", {}), f"the headers of the response {status} of {place}")


def _dictionary(value: object, place: str) -> Spec:
    if not isinstance(value, dict):
        raise _wrong(value, place, "a dictionary")
    return value


def _text(value: object, place: str) -> None:
    if not isinstance(value, str):
        raise _wrong(value, place, "a text")


def _wrong(value: object, place: str, expected: str) -> ConfigError:
    return ConfigError(
        f"In the specification given to openapi(), {place} is {value!r:.200}. Expected {expected}; "
        "leave it out if it is empty."
    )


def _paths(spec: Spec) -> Iterator[tuple[str, Any]]:
    """Yield the paths of a specification, without its extensions."""
    for path, item in spec["paths"].items():
        if not str(path).startswith("x-"):
            yield str(path), item


def _add(headers: Spec, response: Spec) -> None:
    """Add headers to a response that does not describe them itself.

    A reference stands for a response of operations without a limit too, so it is left alone.
    """
    if "$ref" not in response:
        known = response.setdefault("headers", {})
        known.update({name: dict(about) for name, about in headers.items() if name not in known})


def _described(headers: Headers, spec: Spec) -> Spec:
    """Describe headers as the version of the specification does."""
    described = {}
    for name, value in headers:
        kind = {"type": "integer" if value.isdecimal() else "string"}
        about = {"description": _ABOUT[name]} if name in _ABOUT else {}
        described[name] = about | (kind if "swagger" in spec else {"schema": kind})
    return described


def _limited(enforcer: Enforcer, spec: Spec) -> Iterator[tuple[Spec, bool]]:
    """Yield the operations that a limit of the application may refuse, and whether a rate may.

    A response that only slots limit has no rate headers, unless it is a refusal.
    """
    endpoints = {
        (_shape(url.rule), method): url.endpoint
        for url in enforcer.app.url_map.iter_rules()
        for method in url.methods or ()
    }
    starts = ["", *_starts(spec)]
    for path, item in _paths(spec):
        for method in _METHODS:
            if method in item:
                places = [(_shape(start + path), method.upper()) for start in starts]
                endpoint = next((endpoints[p] for p in places if p in endpoints), None)
                plan = enforcer.planner.plan(endpoint, method.upper())
                enforced = [bound for bound in plan.bounds if not bound.shadow]
                if endpoint is not None and enforced:
                    yield item[method], any(map(_has_rates, enforced))


def _has_rates(bound: BoundRule) -> bool:
    if bound.fixed is None:
        return True  # its function may return some
    return any(not isinstance(limit, AtOnce) for limit, *_ in bound.fixed)


def _starts(spec: Spec) -> Iterator[str]:
    """Yield the prefixes of an application's URLs before the paths of a specification."""
    for server in spec.get("servers") or ():
        yield urlsplit(server.get("url", "")).path.rstrip("/")
    yield spec.get("basePath", "").rstrip("/")


def _shape(path: str) -> str:
    """Return a path without the names of its variables: ``/pets/{}``.

    Flask writes ``<int:number>`` where a specification writes ``{number}``.
    """
    return re.sub(r"<[^>]*>|\{[^}]*\}", "{}", path)
