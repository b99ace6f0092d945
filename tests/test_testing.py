"""The package's help for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from flask import Flask

from flask_bucket import ConfigError, Limiter
from flask_bucket.stores.memory import MemoryStore
from flask_bucket.testing import START, ManualClock, limits_off, use_clock, use_store


@pytest.fixture
def limiter() -> Limiter:
    return Limiter(application_limits="1/minute")


@pytest.fixture
def app(limiter: Limiter) -> Flask:
    app = Flask(__name__)
    limiter.init_app(app)
    return app


def ask(app: Flask) -> int:
    return app.test_client().get("/").status_code


def test_a_clock_stands_still_until_it_is_advanced() -> None:
    clock = ManualClock()
    assert (clock(), clock()) == (START, START)
    clock.advance(1.5)
    assert clock() == START + 1_500_000


def test_a_clock_is_advanced_by_the_decimal_that_is_written() -> None:
    clock = ManualClock(0)
    for _ in range(10):
        clock.advance(0.1)
    assert clock() == 1_000_000


def test_after_retry_after_the_wait_is_over() -> None:
    store = MemoryStore(clock := ManualClock())
    app = Flask(__name__)
    limiter = Limiter(app, redis=store)
    with app.app_context():
        limiter.consume("7/hour burst 1", "alice")
        wait = limiter.consume("7/hour burst 1", "alice").retry_after
        assert wait is not None
        clock.advance(wait)
        assert limiter.consume("7/hour burst 1", "alice").allowed


def test_an_applications_limits_count_on_a_clock_that_is_turned(app: Flask) -> None:
    clock = use_clock(app)
    assert [ask(app), ask(app)] == [404, 429]
    clock.advance(59.999999)
    assert ask(app) == 429
    clock.advance(0.000001)
    assert ask(app) == 404


def test_each_clock_begins_with_empty_hands(app: Flask) -> None:
    for _ in range(2):
        use_clock(app)
        assert [ask(app), ask(app)] == [404, 429]


def test_a_limiter_that_is_not_there_is_said_to_be_missing(app: Flask) -> None:
    with pytest.raises(ConfigError, match="Limiter 'api' does not know"):
        use_clock(app, "api")
    with pytest.raises(ConfigError, match="init_app"):
        use_store(Flask(__name__), MemoryStore())


def test_only_the_named_limiter_is_moved(app: Flask) -> None:
    Limiter(app, name="api")
    states = app.extensions["flask_bucket"]
    before = states["bucket"].store
    use_clock(app, "api")
    assert states["bucket"].store is before


@pytest.mark.parametrize("enabled", [True, False])
def test_limits_are_off_for_a_while_and_then_as_they_were(enabled: bool) -> None:
    app = Flask(__name__)
    app.config["BUCKET_ENABLED"] = enabled
    limiter = Limiter(app, application_limits="1/minute")
    with limits_off(limiter):
        assert [ask(app), ask(app)] == [404, 404]
    assert [ask(app), ask(app)] == [404, 429 if enabled else 404]


def test_limits_of_one_application_are_off(app: Flask, limiter: Limiter) -> None:
    other = Flask("other")
    limiter.init_app(other)
    Limiter(app, application_limits="1/hour", name="api")
    with limits_off(app):
        assert [ask(app), ask(app)] == [404, 404]
        assert [ask(other), ask(other)] == [404, 429]
    assert [ask(app), ask(app)] == [404, 429]


def test_limits_of_an_application_without_a_limiter_cannot_be_off() -> None:
    with pytest.raises(ConfigError, match="init_app"), limits_off(Flask("bare")):
        pass


def test_limits_come_back_after_an_error(app: Flask, limiter: Limiter) -> None:
    with pytest.raises(ZeroDivisionError), limits_off(limiter):
        raise ZeroDivisionError
    assert [ask(app), ask(app)] == [404, 429]


def test_the_fixtures_are_a_plugin_to_opt_into(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["flask_bucket.testing"]\n')
    (tmp_path / "test_it.py").write_text(
        "from flask import Flask\n"
        "from flask_bucket import Limiter\n"
        "def test_it(bucket_store, bucket_clock):\n"
        "    app = Flask(__name__)\n"
        "    Limiter(app, application_limits='1/minute', redis=bucket_store)\n"
        "    client = app.test_client()\n"
        "    assert [client.get('/').status_code for _ in range(2)] == [404, 429]\n"
        "    bucket_clock.advance(60)\n"
        "    assert client.get('/').status_code == 404\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=alone)
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_pytest_is_not_needed() -> None:
    script = "import sys; sys.modules['pytest'] = None; import flask_bucket.testing"
    subprocess.run([sys.executable, "-c", script], check=True)
