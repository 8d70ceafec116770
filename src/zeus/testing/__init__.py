"""What user test suites need: a simulated node, work to run on it, replayed measurements."""
