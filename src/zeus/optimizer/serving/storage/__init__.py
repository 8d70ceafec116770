"""What is kept of services: who controls them, sums of their runs, and what happened over time."""
