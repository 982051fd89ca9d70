"""Limits inside containers: the files and sockets that limiter libraries read."""
