"""Histories of real workers, and a checker that looks for an order that explains them."""
