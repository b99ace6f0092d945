"""A charge."""

from __future__ import annotations

from flask_bucket.decisions import Charge
from flask_bucket.limits import Limit

CHARGE = Charge(Limit.parse("5/day"), "bucket:{alice}:page:per-day")
