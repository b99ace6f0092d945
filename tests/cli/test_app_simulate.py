"""``flask bucket simulate`` without ``--limit``: what it reports, and what it assumes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import flask_restful  # type: ignore[import-untyped]
import pytest
from flask import Flask, Response, request

from flask_bucket import Limiter, client_network, networks, request_header
from tests.cli.conftest import Run, line, run_in


def failed(response: Response) -> bool:
    return response.status_code == 401


def simulated(app: Flask, write_log: Callable[..., Path], *lines: str, **options: str) -> Any:
    arguments = [part for name, value in options.items() for part in (f"--{name}", value)]
    return run_in(app)("simulate", write_log(*lines), *arguments, "--json").data


def test_the_report_for_programs_has_exactly_this_shape(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app)
    app.add_url_rule("/", "index", limiter.limit("2/hour", dry_run=True)(lambda: ""))
    app.add_url_rule("/once", "once", limiter.limit("1/hour")(lambda: ""))
    once = line(rest='"GET /once HTTP/1.1" 200 5')
    tls = line(rest=r'"\x16\x03\x01" 400 150')
    assert simulated(app, write_log, *[line()] * 3, once, once, tls) == {
        "requests": 5,
        "allowed": 4,
        "refused": 1,
        "clients": 1,
        "without_request": 1,
        "malformed": 0,
        "first_malformed": None,
        "endpoints": [
            {"endpoint": "once", "requests": 2, "refused": 1},
            {"endpoint": "index", "requests": 3, "refused": 0},
        ],
        "limits": [
            {
                "endpoint": "index",
                "limit": "2/hour",
                "name": "per-hour",
                "source": "view",
                "limiter": "bucket",
                "dry_run": True,
                "requests": 3,
                "refused": 1,
            },
            {
                "endpoint": "once",
                "limit": "1/hour",
                "name": "per-hour",
                "source": "view",
                "limiter": "bucket",
                "dry_run": False,
                "requests": 2,
                "refused": 1,
            },
        ],
        "worst": [{"client": "203.0.113.7", "refused": 1, "requests": 2 + 3}],
        "assumptions": [],
    }


def test_people_read_endpoints_limits_and_what_is_not_known(
    write_log: Callable[..., Path],
) -> None:
    app = Flask(__name__)
    limiter = Limiter(app)

    def size() -> int:
        return int(request.headers["Content-Length"])

    app.add_url_rule("/", "index", limiter.limit("2/hour", cost=size)(lambda: ""))
    log = write_log(*[line()] * 3, line(rest='"GET /nowhere HTTP/1.1" 404 5'))
    said = run_in(app)("simulate", log)
    assert said.out == (
        "4 requests from 1 client: 3 allowed, 1 refused (25.00%).\n\n"
        "ENDPOINT    REQUESTS  REFUSED   SHARE\n"
        "index              3        1  33.33%\n"
        "(no route)         1        0   0.00%\n\n"
        "LIMIT   ENDPOINT  SOURCE  REQUESTS  REFUSED   SHARE\n"
        "2/hour  index     view           3        1  33.33%\n\n"
        "Most refused:\n"
        "CLIENT       REFUSED  REQUESTS\n"
        "203.0.113.7        1         4\n\n"
        "The log does not tell everything:\n"
        "- The cost that size returns: 1 is assumed.\n"
    )


def refused(data: Any) -> int:
    return int(data["refused"])


def one_view(*rules: Any, view: Callable[[], Any] = lambda: "", **options: Any) -> Flask:
    app = Flask(__name__)
    limiter = Limiter(app)
    app.add_url_rule("/", "index", limiter.limit(*rules, **options)(view))
    return app


def test_networks_are_asked_about_the_address_in_the_log(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour", exempt_when=networks("203.0.113.0/24"))
    assert refused(simulated(app, write_log, *[line()] * 3)) == 0
    assert refused(simulated(app, write_log, *[line("192.0.2.1")] * 3)) == 2
    whole = one_view("1/hour", key_func=client_network())
    assert refused(simulated(whole, write_log, line("192.0.2.1"), line("192.0.2.9"))) == 1


def test_a_key_that_is_always_the_same_is_taken_as_it_is(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour", key_func=lambda: "all")
    data = simulated(app, write_log, line("192.0.2.1"), line("192.0.2.9"))
    assert (refused(data), data["assumptions"]) == (1, [])


def test_a_key_that_the_log_does_not_tell_is_the_address_or_the_user(
    write_log: Callable[..., Path],
) -> None:
    app = one_view("1/hour", key_func=request_header("X-API-Key"))
    lines = [line(user="alice"), line(user="bob"), line(user="bob"), line(), line()]
    by_address = simulated(app, write_log, *lines)
    assert refused(by_address) == 4
    assert "the address is used" in by_address["assumptions"][0]
    by_user = simulated(app, write_log, *lines, by="user")
    assert refused(by_user) == 1  # requests without a user are left out
    assert "the user in the log is used" in by_user["assumptions"][0]


def test_tokens_are_given_back_for_a_status_that_does_not_cost_them(
    write_log: Callable[..., Path],
) -> None:
    app = one_view("1/hour", deduct_when=failed)
    welcome, wrong = '"GET / HTTP/1.1" 200 5', '"GET / HTTP/1.1" 401 5'
    lines = [line(rest=rest) for rest in (welcome, welcome, wrong, wrong)]
    data = simulated(app, write_log, *lines)
    assert refused(data) == 1
    assert data["assumptions"] == [
        "What deduct_when failed returns: it is asked with the status alone."
    ]


def test_a_refused_request_gives_nothing_back(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app)
    tries = limiter.shared_limit("2/hour", scope="tries", deduct_when=failed)
    app.add_url_rule("/a", "a", tries(limiter.limit("1/hour")(lambda: "")))
    app.add_url_rule("/b", "b", tries(lambda: ""))
    lines = [
        line(rest=rest)
        for rest in (
            '"GET /a HTTP/1.1" 401 5',
            '"GET /a HTTP/1.1" 200 5',
            '"GET /b HTTP/1.1" 401 5',
            '"GET /b HTTP/1.1" 401 5',
        )
    ]
    endpoints = simulated(app, write_log, *lines)["endpoints"]
    assert {e["endpoint"]: e["refused"] for e in endpoints} == {"a": 1, "b": 1}


def test_a_dry_run_gives_back_only_what_it_took(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour", dry_run=True, deduct_when=failed)
    wrong, welcome = line(rest='"GET / HTTP/1.1" 401 5'), line(rest='"GET / HTTP/1.1" 200 5')
    data = simulated(app, write_log, wrong, welcome, wrong)
    assert (refused(data), data["limits"][0]["refused"]) == (0, 2)


def test_a_deduct_when_that_needs_a_request_keeps_the_tokens(
    write_log: Callable[..., Path],
) -> None:
    app = one_view("1/hour", deduct_when=lambda response: request.path == "/")
    data = simulated(app, write_log, line(), line())
    assert refused(data) == 1
    assert "True is assumed" in data["assumptions"][0]


def test_a_limit_from_the_configuration_is_the_one_of_now(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    app.config["SEARCHES"] = "2/hour"
    limiter = Limiter(app)
    limited = limiter.limit(lambda: app.config["SEARCHES"])
    app.add_url_rule("/", "index", limited(lambda: ""))
    data = simulated(app, write_log, *[line()] * 3)
    assert refused(data) == 1
    assert data["limits"][0]["limit"] == "2/hour"
    assert "the one that it returns now is used" in data["assumptions"][0]


def test_a_limit_that_needs_a_request_is_left_out_and_named(
    write_log: Callable[..., Path],
) -> None:
    data = simulated(one_view(lambda: request.headers["X-Plan"]), write_log, *[line()] * 3)
    assert (refused(data), data["limits"]) == (0, [])
    assert "it is left out, because the function needs a request" in data["assumptions"][0]
    assert "lambda in line" in data["assumptions"][0]
    assert "test_app_simulate" in data["assumptions"][0]


def test_the_options_that_flask_answers_reach_no_view(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour")
    options = line(rest='"OPTIONS / HTTP/1.1" 200 5')
    head = line(rest='"HEAD / HTTP/1.1" 200 5')
    data = simulated(app, write_log, options, options, head, line())
    assert refused(data) == 1


def test_limits_in_method_decorators_are_replayed(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app, default_limits="1/day")

    class Items(flask_restful.Resource):  # type: ignore[misc]
        method_decorators: ClassVar = [limiter.limit("2/hour")]

        def get(self) -> str:
            return "got"

    flask_restful.Api(app).add_resource(Items, "/")
    options = line(rest='"OPTIONS / HTTP/1.1" 200 5')
    data = simulated(app, write_log, options, options, options, *[line()] * 3)
    assert refused(data) == 1
    assert [(each["limit"], each["source"]) for each in data["limits"]] == [("2/hour", "view")]


def test_request_filters_are_assumed_to_let_nothing_pass(write_log: Callable[..., Path]) -> None:
    app = Flask(__name__)
    limiter = Limiter(app, default_limits="1/hour")
    app.add_url_rule("/", "index", lambda: "")

    @limiter.request_filter
    def is_staff() -> bool:
        return bool(request.headers.get("X-Staff"))

    data = simulated(app, write_log, line(), line())
    assert refused(data) == 1
    assert data["assumptions"] == ["What the request filter is_staff returns: False is assumed."]


@pytest.mark.parametrize("option", [("--together",), ("--suggest", "1%"), ("--plot", "a.png")])
def test_options_for_limits_by_hand_are_refused_without_one(
    option: tuple[str, ...], write_log: Callable[..., Path]
) -> None:
    said = run_in(one_view("1/hour"))("simulate", write_log(line()), *option)
    assert said.code == 2
    assert "for limits that --limit gives" in said.err


def test_without_a_limit_and_an_application_both_are_named(
    run: Run, write_log: Callable[..., Path]
) -> None:
    said = run("simulate", write_log(line()))
    assert said.code == 2
    assert "--limit" in said.err
    assert "flask --app shop bucket simulate" in said.err


def test_nothing_of_the_application_is_charged(write_log: Callable[..., Path]) -> None:
    app = one_view("1/hour")
    simulated(app, write_log, *[line()] * 3)
    client = app.test_client()
    environ = {"REMOTE_ADDR": "203.0.113.7"}
    assert client.get("/", environ_base=environ).status_code == 200
