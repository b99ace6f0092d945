"""Limits on requests at once, as the commands show and check them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flask import Flask, Response

from flask_bucket import AtOnce, Limiter
from tests.cli.conftest import Run, codes, examine, line, run_in
from tests.servers import Server

ALICE = "203.0.113.7"


def serve(valkey: Server, rule: Any, *, config: Any = (), **options: Any) -> Flask:
    """Return an application whose responses are streamed, so that each holds a slot."""
    app = Flask(__name__, static_folder=None)
    app.config.update(BUCKET_REDIS_URL=valkey.url, BUCKET_TIMEOUT=5)
    app.config.update(config)
    view = Limiter(app).limit(rule, **options)(lambda: Response(iter(["a", "b"])))
    app.add_url_rule("/export", "export", view)
    return app


def hold(app: Flask, times: int) -> None:
    """Send requests whose responses nobody reads."""
    for _ in range(times):
        client = app.test_client()
        assert client.get("/export", environ_base={"REMOTE_ADDR": ALICE}).status_code == 200


@pytest.fixture
def app(valkey: Server) -> Iterator[Flask]:
    app = serve(valkey, "3 at once", holds=30)
    yield app
    app.extensions["flask_bucket"]["bucket"].store.close()


def test_show_tells_how_many_slots_are_free(app: Flask) -> None:
    hold(app, 2)
    (shown,) = run_in(app)("show", ALICE, "--json").data["buckets"]
    assert (shown["name"], shown["limit"], shown["scope"]) == ("at-once", "3 at once", "export")
    assert (shown["tokens"], shown["capacity"]) == (1, 3)
    assert 0 < shown["next_in"] <= shown["full_in"] <= 30
    assert "3 at once" in run_in(app)("show", ALICE).out


def test_show_tells_nothing_of_slots_that_were_given_back(app: Flask) -> None:
    with app.test_client().get("/export", environ_base={"REMOTE_ADDR": ALICE}):
        pass
    assert run_in(app)("show", ALICE, "--json").data["buckets"] == []


def test_show_tells_of_slots_that_no_rule_names(app: Flask, valkey: Server) -> None:
    hold(app, 1)
    other = serve(valkey, "5/minute")
    (shown,) = run_in(other)("show", ALICE, "--json").data["buckets"]
    assert (shown["name"], shown["limit"], shown["tokens"]) == ("at-once", None, None)


def test_show_reads_the_number_that_a_function_returned(valkey: Server) -> None:
    app = serve(valkey, lambda: AtOnce(4, holds=30))
    hold(app, 1)
    (shown,) = run_in(serve(valkey, "5/minute"))("show", ALICE, "--json").data["buckets"]
    assert (shown["limit"], shown["tokens"], shown["from_function"]) == ("4 at once", 3, True)


def test_top_lists_clients_whose_slots_are_used(app: Flask) -> None:
    hold(app, 3)
    (shown,) = run_in(app)("top", "--json").data["buckets"]
    assert (shown["client"], shown["tokens"]) == (ALICE, 0)


def test_reset_frees_slots(app: Flask) -> None:
    hold(app, 3)
    assert run_in(app)("reset", ALICE).out == "Forgot 1 bucket.\n"
    hold(app, 3)


def test_limits_lists_how_long_slots_are_held(valkey: Server) -> None:
    app = serve(valkey, "10/second; 3 at once", holds=30, cost=2)
    (route,) = run_in(app)("limits", "--json").data["routes"]
    rate, slots = route["limits"]
    assert (rate["limit"], rate["cost"], rate["conditions"]) == ("10/second", 2, [])
    assert (slots["limit"], slots["name"]) == ("3 at once", "at-once")
    assert (slots["cost"], slots["conditions"]) == (1, ["holds 30 s"])


def test_a_log_cannot_tell_what_would_run_at_once(
    run: Run, write_log: Callable[..., Path], valkey: Server
) -> None:
    log = write_log(line(rest='"GET /export HTTP/1.1" 200 5'))
    said = run("simulate", log, "--limit", "5/minute; 3 at once")
    assert said.code != 0
    assert "a log cannot tell what 3 at once would refuse" in said.err
    replayed = run_in(serve(valkey, "1/minute; 3 at once"))("simulate", log, "--json").data
    assert [limit["limit"] for limit in replayed["limits"]] == ["1/minute"]
    assert any("How long requests run" in text for text in replayed["assumptions"])


def test_a_mixed_rule_is_not_taken_for_one_that_refuses_everything(valkey: Server) -> None:
    assert codes(examine(serve(valkey, "10/second burst 50; 3 at once", cost=5))) == []


def test_slots_are_no_lease_that_does_nothing(valkey: Server) -> None:
    config = {"BUCKET_LEASE": 0.1, "BUCKET_WORKERS": 4}
    said = examine(serve(valkey, "100/second burst 5000; 3 at once", config=config))
    assert codes(said, "note", "warning", "error").count("FB402") == 0


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ("--workers 4", []),
        ("--timeout 30", []),
        ("-w4 --timeout=31", ["FB501"]),
        ("-t 120", ["FB501"]),
        ("-t0", ["FB501"]),
    ],
)
def test_slots_that_are_free_before_the_request_is_over(
    app: Flask, monkeypatch: pytest.MonkeyPatch, arguments: str, found: list[str]
) -> None:
    monkeypatch.setenv("GUNICORN_CMD_ARGS", arguments)
    assert [code for code in codes(examine(app)) if code == "FB501"] == found


def test_a_user_who_may_not_hold_slots(valkey: Server) -> None:
    rights = ("+evalsha", "+eval", "+time", "+hmget", "+hset", "+pexpire", "+info", "+scan")
    with valkey.client() as client:
        client.execute_command("ACL", "SETUSER", "app", "reset", "on", ">word", "~*", *rights)
        client.execute_command("ACL", "SETUSER", "app", "+ping", "+unlink", "+config")
        try:
            url = valkey.url.replace("//", "//app:word@")
            app = serve(valkey, "3 at once", config={"BUCKET_REDIS_URL": url})
            assert codes(examine(app), "error") == ["FB502"]
            more = ("zadd", "zcount", "zrange", "zrangebyscore", "zremrangebyscore", "zscore")
            client.execute_command("ACL", "SETUSER", "app", *(f"+{name}" for name in more))
            assert codes(examine(app), "error") == []
        finally:
            client.execute_command("ACL", "DELUSER", "app")


def test_a_server_out_of_reach_is_told_once() -> None:
    app = Flask("app")
    limiter = Limiter(app, redis="redis://127.0.0.1:1/0")
    app.add_url_rule("/", "index", limiter.limit("2 at once")(lambda: "fine"))
    assert codes(examine(app), "error") == ["FB101"]
