"""Reads traces and replays them through the same ledger and the same engine as a cluster."""
