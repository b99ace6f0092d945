"""Where Flask-Limiter's names keep their meaning: one declaration, the same verdicts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from flask import Blueprint, Flask, Response, request

from tests.migration.both import Both, view

MINUTE = 60


def served(app: Flask, path: str, limit: Any, **options: Any) -> None:
    """Add a view; `limit` decorates it."""
    endpoint = path.strip("/").replace("/", "_") or "index"
    function = view(endpoint)
    app.add_url_rule(path, endpoint, limit(function) if limit else function, **options)


def small_app(app: Flask, limiter: Any) -> None:
    """Everything that people use every day, declared once for both."""
    served(app, "/", None)
    served(app, "/one", limiter.limit("5/minute"))
    served(app, "/worded", limiter.limit("5 per 1 minute"))
    served(app, "/two", limiter.limit("3/minute; 1000/hour"))
    served(app, "/called", limiter.limit(lambda: "4/minute"))
    served(app, "/cost", limiter.limit("6/minute", cost=2))
    served(app, "/counted", limiter.limit("6/minute", cost=lambda: 3))
    served(app, "/exempted", limiter.exempt)
    served(app, "/when", limiter.limit("2/minute", exempt_when=lambda: "free" in request.args))
    served(app, "/keyed", limiter.limit("2/minute", key_func=lambda: request.args["user"]))
    served(app, "/posts", limiter.limit("2/minute", methods=["POST"]), methods=["GET", "POST"])
    served(app, "/each", limiter.limit("2/minute", per_method=True), methods=["GET", "POST"])
    served(app, "/added", limiter.limit("50/minute", override_defaults=False))
    shared = limiter.shared_limit("4/minute", scope="shared")
    served(app, "/shared/a", shared)
    served(app, "/shared/b", shared)

    inner = limiter.limit("9/hour")(view("stacked"))
    app.add_url_rule("/stacked", view_func=limiter.limit("7/minute")(inner))

    blueprint = Blueprint("blue", __name__, url_prefix="/blue")
    blueprint.add_url_rule("/plain", "plain", view("blue_plain"))
    blueprint.add_url_rule("/own", "own", limiter.limit("1/minute")(view("own")))
    limiter.limit("2/minute")(blueprint)
    app.register_blueprint(blueprint)

    free = Blueprint("free", __name__, url_prefix="/free")
    free.add_url_rule("/plain", "plain", view("free_plain"))
    limiter.exempt(free)
    app.register_blueprint(free)

    @limiter.request_filter  # type: ignore[untyped-decorator]  # of either
    def from_inside() -> bool:
        return request.headers.get("X-Inside") == "yes"


@pytest.fixture
def both(monkeypatch: pytest.MonkeyPatch) -> Both:
    return Both(small_app, monkeypatch, default_limits=["8/minute"])


PATHS = [
    ("/", 8),
    ("/one", 5),
    ("/worded", 5),
    ("/two", 3),
    ("/called", 4),
    ("/cost", 3),
    ("/counted", 2),
    ("/exempted", 12),
    ("/when", 2),
    ("/when?free=1", 12),
    ("/keyed?user=ann", 2),
    ("/posts", 8),
    ("/each", 2),
    ("/added", 8),
    ("/shared/a", 4),
    ("/stacked", 7),
    ("/blue/plain", 2),
    ("/blue/own", 1),
    ("/free/plain", 12),
]


@pytest.mark.parametrize(("path", "limit"), PATHS, ids=[path for path, _ in PATHS])
def test_a_burst_is_allowed_as_far_as_the_limit(both: Both, path: str, limit: int) -> None:
    assert both.allowed(12, path) == (limit, limit)


def test_after_a_whole_idle_period_it_is_allowed_again(both: Both) -> None:
    assert both.allowed(7, "/one") == (5, 5)
    both.wait(MINUTE)
    assert both.allowed(7, "/one") == (5, 5)


def test_clients_are_counted_apart(both: Both) -> None:
    both.allowed(6, "/one", client="192.0.2.1")
    assert both.ask("/one", client="192.0.2.1") == (429, 429)
    assert both.ask("/one", client="192.0.2.2") == (200, 200)
    both.allowed(3, "/keyed?user=ann")
    assert both.ask("/keyed?user=ann") == (429, 429)
    assert both.ask("/keyed?user=bob") == (200, 200)


def test_endpoints_have_default_limits_each_for_itself(both: Both) -> None:
    both.allowed(9, "/")
    assert both.ask("/") == (429, 429)
    assert both.ask("/added") == (200, 200)


def test_a_shared_limit_counts_over_its_endpoints(both: Both) -> None:
    assert both.allowed(3, "/shared/a") == (3, 3)
    assert both.allowed(3, "/shared/b") == (1, 1)


def test_methods_are_told_apart(both: Both) -> None:
    assert both.allowed(4, "/posts", method="POST") == (2, 2)
    assert both.ask("/posts") == (200, 200)
    assert both.allowed(4, "/each") == (2, 2)
    assert both.allowed(4, "/each", method="POST") == (2, 2)


def test_a_request_filter_lets_everything_pass(both: Both) -> None:
    assert both.allowed(12, "/one", headers={"X-Inside": "yes"}) == (12, 12)


@pytest.mark.parametrize("seed", range(3))
def test_typical_traffic_gets_the_same_verdicts(both: Both, seed: int) -> None:
    """Bursts of every size at the beginning of each minute, on every endpoint, by some clients."""
    random = Random(seed)
    paths = [path for path, _ in PATHS if path != "/stacked"]  # its second limit is for an hour
    for _ in range(8):
        for _ in range(60):
            path, client = random.choice(paths), f"192.0.2.{random.randrange(3)}"
            theirs, ours = both.ask(path, client=client)
            assert theirs == ours, f"{path} by {client} at {both.second}"
        both.wait(MINUTE)


def test_only_answers_that_count_are_deducted(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        def failed(response: Response) -> bool:
            return response.status_code == 401

        def login() -> tuple[str, int]:
            return "", 200 if request.args.get("password") == "right" else 401

        app.add_url_rule("/login", view_func=limiter.limit("2/minute", deduct_when=failed)(login))

    both = Both(declare, monkeypatch)
    assert both.allowed(5, "/login?password=right") == (5, 5)
    assert both.allowed(5, "/login?password=wrong") == (2, 2)
    assert both.ask("/login?password=right") == (429, 429)


def test_application_limits_count_over_all_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        served(app, "/a", None)
        served(app, "/b", limiter.limit("100/minute"))

    both = Both(declare, monkeypatch, application_limits=["5/minute"])
    assert both.allowed(3, "/a") == (3, 3)
    assert both.allowed(3, "/b") == (2, 2)


def test_messages_and_handlers_of_a_breach_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        served(app, "/said", limiter.limit("1/minute", error_message="too fast"))
        served(
            app, "/teapot", limiter.limit("1/minute", on_breach=lambda _: Response("", status=418))
        )

    both = Both(declare, monkeypatch)
    both.ask("/said")
    both.ask("/teapot")
    assert "too fast" in both.theirs.get("/said", environ_base={"REMOTE_ADDR": "192.0.2.1"}).text
    assert "too fast" in both.ours.get("/said", environ_base={"REMOTE_ADDR": "192.0.2.1"}).text
    assert both.ask("/teapot") == (418, 418)


def test_numbers_are_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        def user() -> int:
            return int(request.args["user"])

        served(app, "/", limiter.limit("2/minute", key_func=user))

    both = Both(declare, monkeypatch)
    assert both.allowed(3, "/?user=7") == (2, 2)
    assert both.allowed(3, "/?user=8") == (2, 2)


def test_functions_within_a_view_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    def declare(app: Flask, limiter: Any) -> None:
        inner = limiter.limit("4/minute")(view("inner"))
        app.add_url_rule("/twice", "twice", lambda: inner() + inner())
        app.add_url_rule("/once", "once", lambda: inner())

    both = Both(declare, monkeypatch)
    assert both.allowed(3, "/twice") == (2, 2)
    assert both.allowed(6, "/once") == (4, 4)


LEVELS = [None, True, False]


@pytest.mark.parametrize("outer", LEVELS)
@pytest.mark.parametrize("inner", LEVELS)
@pytest.mark.parametrize("own", LEVELS)
@pytest.mark.parametrize("default", [[], ["1/minute"]])
def test_levels_override_each_other_or_add_up(
    monkeypatch: pytest.MonkeyPatch,
    outer: bool | None,
    inner: bool | None,
    own: bool | None,
    default: list[str],
) -> None:
    """Of each level, whether it has a limit, and whether that overrides the levels around it."""

    def declare(app: Flask, limiter: Any) -> None:
        around, within = Blueprint("around", __name__), Blueprint("within", __name__)
        for level, overrides, amount in ((around, outer, 2), (within, inner, 3)):
            if overrides is not None:
                limiter.limit(f"{amount}/minute", override_defaults=overrides)(level)
        index = view("index")
        if own is not None:
            index = limiter.limit("4/minute", override_defaults=own)(index)
        within.add_url_rule("/", "index", index)
        around.register_blueprint(within)
        app.register_blueprint(around)

    theirs, ours = Both(declare, monkeypatch, default_limits=default).allowed(6)
    assert theirs == ours
