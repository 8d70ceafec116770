"""What Acme adds to Zeus: GPUs, an objective, a policy, a schedule and metrics."""
