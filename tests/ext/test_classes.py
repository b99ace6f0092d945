"""Class-based views."""

from __future__ import annotations

from typing import ClassVar

from flask import Flask
from flask.testing import FlaskClient
from flask.views import MethodView, View

from flask_bucket import Limiter
from tests.ext.conftest import CountingStore, allowed, statuses


def test_methods_of_a_view_with_one_text_do_not_share_a_bucket(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Items(MethodView):
        @limiter.limit("1/minute")
        def get(self) -> str:
            return "got"

        @limiter.limit("1/minute")
        def post(self) -> str:
            return "posted"

        def put(self) -> str:
            return "put"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    assert statuses(client, "/", 2) == [200, 429]
    assert statuses(client, "/", 2, method="POST") == [200, 429]
    assert statuses(client, "/", 3, method="PUT") == [200, 200, 200]


def test_head_is_served_and_counted_as_get(
    app: Flask, limiter: Limiter, client: FlaskClient, buckets: CountingStore
) -> None:
    class Items(MethodView):
        @limiter.limit("1/minute")
        def get(self) -> str:
            return "got"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    assert statuses(client, "/", 1, method="HEAD") == [200]
    assert statuses(client, "/", 1) == [429]
    assert set(buckets.keys) == {"bucket:{127.0.0.1}:items@get:per-minute"}


def test_a_method_of_a_view_overrides_the_defaults_for_itself(
    app: Flask, buckets: CountingStore
) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["1/minute"])

    class Items(MethodView):
        @limiter.limit("3/minute")
        def get(self) -> str:
            return "got"

        def post(self) -> str:
            return "posted"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    client = app.test_client()
    assert allowed(client, "/") == 3
    assert allowed(client, "/", method="POST") == 1


def test_view_decorators_limit_all_methods_together(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["1/minute"])

    class Items(MethodView):
        decorators: ClassVar = [limiter.limit("2/minute")]

        def get(self) -> str:
            return "got"

        def post(self) -> str:
            return "posted"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    client = app.test_client()
    assert statuses(client, "/", 2) + statuses(client, "/", 1, method="POST") == [200, 200, 429]
    assert "default" not in "".join(buckets.keys)


def test_view_decorators_and_a_method_are_both_charged(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Items(MethodView):
        decorators: ClassVar = [limiter.limit("3/minute")]

        @limiter.limit("1/minute")
        def get(self) -> str:
            return "got"

        def post(self) -> str:
            return "posted"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    assert statuses(client, "/", 4) == [200, 429, 429, 429], "and the refused ones took nothing"
    assert statuses(client, "/", 3, method="POST") == [200, 200, 429]


def test_dispatch_request_can_be_limited(app: Flask, limiter: Limiter, client: FlaskClient) -> None:
    class Page(View):
        init_every_request = False

        @limiter.limit("2/minute")
        def dispatch_request(self) -> str:
            return "page"

    app.add_url_rule("/", view_func=Page.as_view("page"))
    assert statuses(client, "/", 3) == [200, 200, 429]


def test_a_class_under_two_endpoints_has_two_buckets(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Items(MethodView):
        @limiter.limit("1/minute")
        def get(self) -> str:
            return "got"

    app.add_url_rule("/a", view_func=Items.as_view("a"))
    app.add_url_rule("/b", view_func=Items.as_view("b"))
    assert (allowed(client, "/a"), allowed(client, "/b")) == (1, 1)


def test_an_inherited_method_is_limited_and_super_is_charged_too(
    app: Flask, limiter: Limiter, client: FlaskClient
) -> None:
    class Base(MethodView):
        @limiter.limit("2/minute")
        def get(self) -> str:
            return "base"

    class Inherits(Base):
        pass

    class Overrides(Base):
        @limiter.limit("9/minute")
        def get(self) -> str:
            return super().get()

    app.add_url_rule("/inherits", view_func=Inherits.as_view("inherits"))
    app.add_url_rule("/overrides", view_func=Overrides.as_view("overrides"))
    assert (allowed(client, "/inherits"), allowed(client, "/overrides")) == (2, 2)


def test_a_method_of_a_view_can_be_exempted(app: Flask, buckets: CountingStore) -> None:
    limiter = Limiter(app, redis=buckets, default_limits=["1/minute"])

    class Items(MethodView):
        @limiter.exempt
        def get(self) -> str:
            return "got"

        def post(self) -> str:
            return "posted"

    class Free(MethodView):
        decorators: ClassVar = [limiter.exempt]

        def get(self) -> str:
            return "got"

    app.add_url_rule("/", view_func=Items.as_view("items"))
    app.add_url_rule("/free", view_func=Free.as_view("free"))
    client = app.test_client()
    assert allowed(client, "/") == allowed(client, "/free") == 30
    assert allowed(client, "/", method="POST") == 1
