"""How the schema came about, step by step; applied by `store/schema.py`."""
