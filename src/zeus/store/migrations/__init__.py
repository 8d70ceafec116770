"""Alembic migrations of the schema; applied by `store/schema.py`."""
