"""Small faults that the property tests must find, planted one at a time.

Run it as ``python -m tests.mutation``.
"""
