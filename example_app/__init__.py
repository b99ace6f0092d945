"""The example app: one endpoint for each common use of rate limits.

Serve it with four workers that share an embedded server::

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

    ``FLASK_BUCKET_REDIS_URL`` and the other ``FLASK_BUCKET_`` variables configure the limiter.
    ``EXAMPLE_CAPACITY``, ``EXAMPLE_REFILL_RATE`` and ``EXAMPLE_TRUSTED_PROXIES`` configure the app.

    :raises ConfigError: for a variable with an invalid value.
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
    """Take the client's address from the last `proxies` entries of X-Forwarded-For.

    Without a proxy, the client itself writes this header. An app that trusts it gives each client
    as many buckets as the client can invent addresses.
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
        """Show a page that sends requests to /test and shows the buckets."""
        return render_template("page.html", limit=settings.test_limit)

    @app.get("/test")
    @limiter.limit(settings.test_limit, key_func=demo_client)
    def test() -> ResponseReturnValue:
        """Answer while the client's bucket has tokens."""
        return {"ok": True}

    @app.get("/search")
    @limiter.limit("5/second burst 20")
    def search() -> ResponseReturnValue:
        """Allow a burst of 20, as a search box makes, and 5 requests a second over time."""
        return {"query": request.args.get("q", ""), "results": []}

    @app.post("/login")
    @limiter.limit("5/minute", deduct_when=is_unauthorized)
    def login() -> ResponseReturnValue:
        """Count only wrong passwords. The right ones are name=demo and password=demo."""
        if not has_right_password():
            return {"error": "Wrong name or password"}, 401
        return {"ok": True}

    @app.get("/report")
    @limiter.limit("1/second burst 10", cost=5)
    def report() -> ResponseReturnValue:
        """Cost five tokens: allow two reports at once, then one every five seconds."""
        return {"report": "Everything is fine."}

    @app.get("/healthz")
    @limiter.exempt
    def healthz() -> ResponseReturnValue:
        """Tell a load balancer that this worker answers. No limit applies."""
        return {"ok": True}


demo_header = request_header("X-Demo-Client")


def demo_client() -> str:
    """Return the client: its address, and the name in its header if that is one of two.

    So the page can be two clients at one address. Only two names are accepted, and the address is
    part of the client: else a client would have as many buckets as it can invent names. A key
    function for API keys is similar, and looks the key up in a database.
    """
    name = demo_header()
    return f"{client_address()} {name}" if name in ("a", "b") else client_address()


def is_unauthorized(response: Response) -> bool:
    return response.status_code == 401


def has_right_password() -> bool:
    """Compare both parts, each in constant time, so that the timing reveals nothing."""
    name, password = (request.form.get(field, "").encode() for field in ("name", "password"))
    return compare_digest(name, b"demo") & compare_digest(password, b"demo")


def name_the_worker(response: Response) -> Response:
    """Show which worker answered. All workers share the buckets."""
    response.headers["X-Served-By"] = str(os.getpid())
    return response
