"""Random and exhaustive histories that check script, reference and promises against each other."""
