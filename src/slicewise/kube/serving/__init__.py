"""Servers that the API server calls: their certificates, and how it knows them."""
