"""The example app: one endpoint for each thing that people do with rate limits.

Serve it with four workers that share one embedded server::

    gunicorn -c example_app/gunicorn.conf.py example_app.wsgi:app
"""

from __future__ import annotations

import os
from hmac import compare_digest

from flask import Flask, Response, render_template, request
from flask.typing import ResponseReturnValue
from werkzeug.middleware.proxy_fix import ProxyFix

from flask_bucket import Limiter, client_address, request_header

from .settings import Settings


def create_app() -> Flask:
    """Make the app from the environment.

    ``FLASK_BUCKET_REDIS_URL`` and the other ``FLASK_BUCKET_`` variables configure the limiter,
    ``EXAMPLE_CAPACITY``, ``EXAMPLE_REFILL_RATE`` and ``EXAMPLE_TRUSTED_PROXIES`` the example.

    :raises ConfigError: for a variable with a value that cannot be used.
    """
    settings = Settings.from_environment()
    app = Flask(__name__)
    app.config.from_prefixed_env()
    trust_proxies(app, settings.trusted_proxies)
    limiter = Limiter(app)
    add_views(app, limiter, settings)
    app.after_request(name_the_worker)
    return app


def trust_proxies(app: Flask, proxies: int) -> None:
    """Take the client's address from X-Forwarded-For, as far as `proxies` proxies wrote it.

    Without proxies the header is whatever a client likes to send. Believing it would give each
    client as many buckets as it can invent addresses.
    """
    if proxies:
        app.wsgi_app = ProxyFix(  # type: ignore[method-assign]  # as Flask documents it
            app.wsgi_app, x_for=proxies, x_proto=proxies
        )


def add_views(app: Flask, limiter: Limiter, settings: Settings) -> None:
    """Add the endpoints, each with its limit."""

    @app.get("/")
    @limiter.exempt
    def index() -> ResponseReturnValue:
        """Show the page on which to watch /test and its buckets."""
        return render_template("page.html", limit=settings.test_limit)

    @app.get("/test")
    @limiter.limit(settings.test_limit, key_func=demo_client)
    def test() -> ResponseReturnValue:
        """Answer, as long as the client's bucket has a token."""
        return {"ok": True}

    @app.get("/search")
    @limiter.limit("5/second burst 20")
    def search() -> ResponseReturnValue:
        """Allow a burst of 20, as typing into a search box makes, and 5 a second over time."""
        return {"query": request.args.get("q", ""), "results": []}

    @app.post("/login")
    @limiter.limit("5/minute", deduct_when=is_unauthorized)
    def login() -> ResponseReturnValue:
        """Count wrong passwords only. Right are name=demo and password=demo."""
        if not has_right_password():
            return {"error": "Wrong name or password"}, 401
        return {"ok": True}

    @app.get("/report")
    @limiter.limit("1/second burst 10", cost=5)
    def report() -> ResponseReturnValue:
        """Be as expensive as five requests: two reports at once, then one every five seconds."""
        return {"report": "Everything is fine."}

    @app.get("/healthz")
    @limiter.exempt
    def healthz() -> ResponseReturnValue:
        """Tell a load balancer that this worker answers, whatever limits are set for all."""
        return {"ok": True}


demo_header = request_header("X-Demo-Client")


def demo_client() -> str:
    """Return the client by a header when there is one to believe, else by its address.

    So the page, at one address, can be two clients. Only two names are believed, each together
    with the address: to believe any would give a client as many buckets as it can invent names.
    A key function for API keys looks the same, but that it looks the key up.
    """
    name = demo_header()
    return f"{client_address()} {name}" if name in ("a", "b") else client_address()


def is_unauthorized(response: Response) -> bool:
    return response.status_code == 401


def has_right_password() -> bool:
    """Compare in constant time, and both parts always, so that timing tells nothing."""
    name, password = (request.form.get(field, "").encode() for field in ("name", "password"))
    return compare_digest(name, b"demo") & compare_digest(password, b"demo")


def name_the_worker(response: Response) -> Response:
    """Show which worker answered: the buckets are the same, whichever it was."""
    response.headers["X-Served-By"] = str(os.getpid())
    return response
