"""The picture of the dashboard: what it is drawn from, without Prometheus."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

pytest.importorskip("matplotlib")

from docs.monitoring import preview
from tests.docs.pages import ROOT

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "monitoring" / "grafana.json").read_text())


def test_every_panel_of_the_dashboard_is_read_with_all_its_expressions() -> None:
    given = [(p["title"], len(p["targets"])) for p in DASHBOARD["panels"]]
    assert [(p.title, len(p.targets)) for p in preview.panels()] == given
    assert len(given) > 10


def test_every_panel_is_drawn_at_its_place_with_the_data_of_its_expressions() -> None:
    asked: list[str] = []

    def ask(expression: str) -> list[tuple[dict[str, str], list[tuple[float, str]]]]:
        asked.append(expression)
        labels = {"endpoint": "search", "limit": "per-second", "outcome": "allowed"}
        return [(labels, [(0.0, "0.25"), (60.0, "NaN" if "quantile" in expression else "0.5")])]

    figure = preview.draw(ask)
    titles = {ax.get_title(loc="left"): ax for ax in figure.axes}
    for panel in DASHBOARD["panels"]:
        place, drawn = panel["gridPos"], titles.pop(panel["title"]).get_position()
        assert place["x"] <= drawn.x0 * 24 < drawn.x1 * 24 <= place["x"] + place["w"]
    assert titles == {}
    assert len(asked) == sum(len(panel["targets"]) for panel in DASHBOARD["panels"])
    assert not any("$" in expression for expression in asked)
    (shares,) = [ax for ax in figure.axes if ax.get_title(loc="left") == "Near the limit"]
    legend = shares.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "search, per-second (mean 38%, max 50%)"
    ]


def test_the_picture_was_drawn_from_this_dashboard() -> None:
    """Else draw it again, as the head of preview.py says."""
    assert preview.digest().encode() in preview.PICTURE.read_bytes()


def test_the_page_says_how_the_picture_was_drawn() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    after = re.sub(r"\s+", " ", page.partition("(images/dashboard.png)")[2])
    assert after.strip().startswith("This picture is not a screenshot of Grafana.")
