"""The Hypothesis profiles: "short" by default, "long" with ``--hypothesis-profile long``.

"short" runs the same histories every time, so it fails only because of a change in the code. "long"
is random, and prints how to reproduce a failure. "mutants" is "short" without the search for the
smallest failure: one failure is enough.
"""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings

_COMMON = settings(
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


def register() -> None:
    settings.register_profile("short", _COMMON, stateful_step_count=30, derandomize=True)
    settings.register_profile("long", _COMMON, stateful_step_count=50)
    settings.register_profile(
        "mutants",
        settings.get_profile("short"),
        phases=[Phase.explicit, Phase.generate],
        report_multiple_bugs=False,
    )


def is_long() -> bool:
    return settings.get_current_profile_name() == "long"


def examples(short: int, long: int) -> settings:
    """Return the chosen profile with a number of examples, short or long."""
    return settings(max_examples=long if is_long() else short)
