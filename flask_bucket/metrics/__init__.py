"""Metrics of what limits decide, each kind an extra: ``prometheus`` and ``opentelemetry``."""
