"""Faults that users of other queues met, each with the right outcome here: ledger.toml lists them all."""
