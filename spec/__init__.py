"""The formal spec of the queue and what checks it: `python -m spec`. Not part of the wheel."""
