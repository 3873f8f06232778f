"""Retrievers: queries in, ranked passages out."""
