"""A job with real data drift: recorded slices, how they were recorded, and policies on them."""
