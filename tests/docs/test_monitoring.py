"""The dashboard and the alert rules ask for metrics, labels and values that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask import Flask
from prometheus_client import CollectorRegistry

from flask_bucket import Limiter, Rule
from flask_bucket.metrics.prometheus import PrometheusMetrics
from tests.conftest import running
from tests.docs.pages import ROOT
from tests.servers import Server, missing

FOLDER = ROOT / "docs" / "monitoring"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "grafana.json").read_text())
ALERTS: dict[str, Any] = yaml.safe_load((FOLDER / "alerts.yml").read_text())

#: Labels that Prometheus itself adds to what it scrapes.
OF_PROMETHEUS = {"job", "instance"}

#: Selectors such as ``metric{label="value"}``; Prometheus's functions have none of our names.
SELECTOR = re.compile(r"(flask_bucket_\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)=~?"([^"]*)"')
GROUPING = re.compile(r"\bby \(([^)]*)\)")


def of_dashboard() -> list[str]:
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    variables = DASHBOARD["templating"]["list"]
    return panels + [v["query"]["query"] for v in variables if v["type"] == "query"]


def of_alerts() -> list[str]:
    return [rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]]


#: Every outcome that can be counted.
OUTCOMES = {
    *("allowed", "refused", "refused-from-cache", "shadow-refused"),
    *("banned", "banned-from-cache", "shadow-banned", "degraded"),
}

EXPRESSIONS = [*of_dashboard(), *of_alerts()]


@pytest.fixture(scope="module")
def registry(servers: dict[str, Server]) -> CollectorRegistry:
    """The metrics of real use, in which everything occurs that can be counted."""
    url = running(servers, "valkey").url
    registry = CollectorRegistry()
    metrics = PrometheusMetrics(registry=registry)

    def use(url: str, *limits: Rule, bans: str = "", **config: Any) -> None:
        app = Flask("shop")
        app.config.update(BUCKET_TIMEOUT=5, BUCKET_WORKERS=1, **config)
        limiter = Limiter(app, redis=url, bans=bans or ())
        for n, rule in enumerate(limits):
            app.add_url_rule(f"/{n}", f"view{n}", limiter.limit(rule)(lambda: "served"))
        metrics.init_app(app)
        for n in [*range(len(limits))] * 40:
            app.test_client().get(f"/{n}")
        app.extensions["flask_bucket"]["bucket"].store.close()

    use(url, Rule("1/hour", scope="plain"), Rule("2/hour", scope="low"))
    use(url, Rule("1/hour", scope="trial", ban="1/hour for 1 day", dry_run=True))
    use(url, Rule("1/hour", scope="banned"), bans="1/hour for 1 day")
    use(url, Rule("1/hour", scope="asked"), bans="1/hour for 1 day", BUCKET_REFUSAL_CACHE=0)
    use(url, Rule("5 at once"), Rule("1000/second burst 4000", lease=10))
    use("redis://127.0.0.1:1", Rule("1/hour"))
    return registry


@pytest.fixture
def samples(registry: CollectorRegistry) -> dict[str, dict[str, set[str]]]:
    """The names of all samples, with their labels and the values that occur."""
    found: dict[str, dict[str, set[str]]] = {}
    for family in registry.collect():
        for sample in family.samples:
            labels = found.setdefault(sample.name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return found


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_an_expression_asks_for_what_exists(
    expression: str, samples: dict[str, dict[str, set[str]]]
) -> None:
    selected = SELECTOR.findall(expression)
    assert selected
    labels = OF_PROMETHEUS.union(*(samples[metric] for metric, _ in selected))
    for metric, matchers in selected:
        for label, value in MATCHER.findall(matchers):
            assert label in samples[metric].keys() | OF_PROMETHEUS
            if not value.startswith("$"):
                assert set(value.split("|")) <= samples[metric][label]
    for names in GROUPING.findall(expression):
        assert {name.strip() for name in names.split(",")} <= labels


def test_the_dashboard_shows_every_metric(registry: CollectorRegistry) -> None:
    shown = {metric for expression in of_dashboard() for metric, _ in SELECTOR.findall(expression)}
    missed = [
        family.name
        for family in registry.collect()
        if not any(metric.startswith(family.name) for metric in shown)
    ]
    assert missed == []


def test_the_dashboard_and_the_page_explain_every_outcome(
    samples: dict[str, dict[str, set[str]]],
) -> None:
    outcomes = samples["flask_bucket_decisions_total"]["outcome"]
    assert outcomes == OUTCOMES
    (panel,) = [p for p in DASHBOARD["panels"] if p["title"] == "Charges by outcome"]
    assert set(re.findall(r"([a-z-]+): ", panel["description"])) == outcomes
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z-]+)`: ", page)) == outcomes


def test_every_outcome_is_asked_for_by_name() -> None:
    asked = [value for e in of_dashboard() for value in re.findall(r'outcome=~?"([^"]*)"', e)]
    assert {outcome for value in asked for outcome in value.split("|")} == OUTCOMES


def test_the_page_lists_every_alert() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    alerts = [rule["alert"] for group in ALERTS["groups"] for rule in group["rules"]]
    assert re.findall(r"^\| `(FlaskBucket\w+)` \|", page, re.MULTILINE) == alerts


def test_panels_have_identities_and_places_of_their_own() -> None:
    panels = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24  # columns that Grafana has


def test_every_alert_says_what_happened_and_how_bad_it_is() -> None:
    for group in ALERTS["groups"]:
        for rule in group["rules"]:
            assert set(rule["annotations"]) == {"summary", "description"}
            assert rule["labels"]["severity"] in ("warning", "critical")
            used = set(re.findall(r"\$labels\.(\w+)", " ".join(rule["annotations"].values())))
            grouped = set(re.findall(r"\w+", GROUPING.search(rule["expr"])[1]))  # type: ignore[index]
            assert used <= grouped


# Prometheus's own tool, where it is installed.


def promtool(*arguments: object) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        missing("promtool")
    command = [str(tool), *map(str, arguments)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_alerts_fire_when_they_should() -> None:
    promtool("test", "rules", Path(__file__).with_name("alerts_test.yml"))


def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    expressions = [e.replace("$__rate_interval", "1m") for e in EXPRESSIONS if "label_" not in e]
    rules = [{"record": f"expression:{n}", "expr": e} for n, e in enumerate(expressions)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    promtool("check", "rules", file)
