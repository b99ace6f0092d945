"""Small faults, planted one at a time, that the property tests must find.

Run it as ``python -m tests.mutation``.
"""
