"""Sphinx's settings. Nothing here needs the network."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pallets_sphinx_themes import ProjectLink

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

project = "flask_bucket"
author = "the flask_bucket authors"
version = release = PROJECT["version"]

extensions = [
    "myst_parser",
    "pallets_sphinx_themes",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_static_path = ["_static"]
html_css_files = ["pages.css"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
myst_ref_domains = ["std", "py"]

autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
# Docstrings have doctests, and show the public names as they are imported by users.
doctest_test_doctest_blocks = "default"
doctest_global_setup = """
__name__ = "example"
from flask import Flask
from prometheus_client import CollectorRegistry

from flask_bucket import *
from flask_bucket.clients import address_of, normal_address
from flask_bucket.keys import spelled
from flask_bucket.masking import masked, masked_url
from flask_bucket.metrics.opentelemetry import OpenTelemetryMetrics
from flask_bucket.metrics.prometheus import PrometheusMetrics
from flask_bucket.testing import *
"""

# Types of other projects, and names that are of use inside this one only.
nitpick_ignore_regex = [
    (r"py:.*", r"(flask|werkzeug|redis|blinker|prometheus_client|opentelemetry)\..*"),
    (r"py:.*", r"(collections\.abc|typing|fractions|decimal|contextlib|datetime|uuid)\..*"),
    # Described at the top of api.md.
    (
        r"py:.*",
        r"(flask_bucket\..*\.)?(RuleSource|LimitSource|LimitDecorator|KeyFunc|Key|Number|Breach|Target|Filter)",
    ),
    # Literals. The fields that have them say their values.
    (r"py:.*", r"(Kind|TakenFrom)"),
    (r"py:.*", r"(Any|Callable|Mapping|Sequence|Iterable|Collection|Iterator)"),
    (r"py:.*", r"(Fraction|Decimal|Flask|Blueprint|Response)"),
    (r"py:.*", r"Callable\[\[.*"),
    (r"py:.*", r"(int|str|float|bool|object|ValueError|RuntimeError)"),
]

html_theme = "flask"
html_title = f"flask_bucket {version}"
html_show_sourcelink = False
html_show_copyright = False
html_context = {"project_links": [ProjectLink("Changes", "changes.html")]}
html_sidebars = {
    "index": ["project.html", "localtoc.html", "searchbox.html"],
    "**": ["localtoc.html", "relations.html", "searchbox.html"],
}
singlehtml_sidebars = {"index": ["project.html", "localtoc.html"]}
