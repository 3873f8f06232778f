"""Policies (plain generators) and the driver that plays them."""
