"""Tests of the formal spec and of what checks it. The whole of `python -m spec` runs beside the tests, not in them."""
