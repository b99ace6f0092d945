"""``show``: the buckets of one client, on real servers."""

from __future__ import annotations

import pytest
from flask import Blueprint, Flask

from flask_bucket import Limiter
from tests.cli.conftest import get, run_in
from tests.servers import Server


def test_a_clients_buckets_are_shown_as_they_stand(app: Flask) -> None:
    get(app, "/search", 3)
    said = run_in(app)("show", "203.0.113.7", "--json")
    (bucket,) = said.data["buckets"]
    assert bucket["tokens"] == 2
    assert (bucket["limit"], bucket["capacity"], bucket["scope"]) == ("5/minute", 5, "search")
    assert 11 < bucket["next_in"] <= 12
    assert 35 < bucket["full_in"] <= 36


def test_people_see_a_table(app: Flask) -> None:
    get(app, "/search", 3)
    columns = ["SCOPE", "LIMIT", "TOKENS", "CAPACITY"]
    heading, row = run_in(app)("show", "203.0.113.7").out.splitlines()
    assert heading.split() == [*columns, "NEXT", "TOKEN", "IN", "FULL", "IN"]
    assert row.split()[:4] == ["search", "5/minute", "2", "5"]


def test_of_other_clients_nothing_is_shown(app: Flask) -> None:
    get(app, "/search", address="203.0.113.77")
    said = run_in(app)("show", "203.0.113.7")
    assert (said.code, said.out) == (
        0,
        "No bucket of 203.0.113.7 is stored, so all are full.\n",
    )


def test_an_address_is_shown_with_its_network(app: Flask) -> None:
    get(app, "/search", address="2001:db8::1")
    assert len(run_in(app)("show", "2001:db8::2", "--json").data["buckets"]) == 1


def test_a_secret_does_not_hide_a_client_from_those_who_have_it(app: Flask, valkey: Server) -> None:
    secret = Flask(__name__)
    secret.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_KEY_SECRET="s", BUCKET_TIMEOUT=5)
    Limiter(secret, application_limits="5/minute")
    get(secret, "/")
    assert len(run_in(secret)("show", "203.0.113.7", "--json").data["buckets"]) == 1
    assert "203" not in run_in(secret)("top").out


def test_the_application_and_blueprints_are_named_in_words(app: Flask) -> None:
    limiter = Limiter(app, name="words", application_limits="50/hour")
    blueprint = Blueprint("cart", __name__, url_prefix="/cart")
    limiter.limit("40/hour")(blueprint)
    blueprint.add_url_rule("/", "show", lambda: "")
    app.register_blueprint(blueprint)
    get(app, "/cart/")
    rows = run_in(app)("show", "203.0.113.7", "--limiter", "words").out.splitlines()[1:]
    assert [row.split("  ")[0] for row in rows] == ["application", "cart.show blueprint"]


def test_a_debt_is_shown_as_one(app: Flask) -> None:
    limiter = Limiter(app, name="tokens")

    @app.get("/ask")
    @limiter.limit("5/minute")
    def ask() -> str:
        limiter.settle(8)
        return ""

    get(app, "/ask")
    (bucket,) = run_in(app)("show", "203.0.113.7", "--json").data["buckets"]
    assert bucket["tokens"] == -3
    assert 47 < bucket["next_in"] <= 48


@pytest.mark.parametrize("arguments", [["reset"], ["reset", "alice", "--all"], ["show"]])
def test_wrong_arguments_are_one_clear_line(app: Flask, arguments: list[str]) -> None:
    said = run_in(app)(*arguments)
    assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis+cluster://127.0.0.1:1"])
@pytest.mark.parametrize(
    "arguments", [["show", "a"], ["reset", "a"], ["reset", "--all", "--yes"], ["top"]]
)
def test_a_server_out_of_reach_is_one_clear_line(arguments: list[str], url: str) -> None:
    app = Flask(__name__)
    app.config["BUCKET_REDIS_URL"] = url
    Limiter(app)
    said = run_in(app)(*arguments)
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert "out of reach" in said.err


@pytest.mark.parametrize("arguments", [["show", "a"], ["reset", "a"], ["reset", "--all"], ["top"]])
def test_buckets_in_the_workers_memory_are_said_to_be_there(arguments: list[str]) -> None:
    app = Flask(__name__)
    Limiter(app)
    said = run_in(app)(*arguments)
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "in the memory of the serving processes" in said.err
