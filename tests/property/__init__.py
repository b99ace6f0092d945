"""Random and exhaustive histories: the script, the reference and the promises, held together."""
