"""Pipeline jobs that are kept: the rows of a store, and the service that answers for them."""
