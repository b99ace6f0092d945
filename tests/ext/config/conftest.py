"""An application that is configured."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from flask import Flask

from flask_bucket.config import Config

KEYS = {f"BUCKET_{field.name.upper()}" for field in fields(Config)}


def configured(**settings: Any) -> Flask:
    app = Flask("configured")
    app.config.update(settings)
    return app
