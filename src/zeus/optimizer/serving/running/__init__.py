"""In the process that controls a service: reports to a server, which control never waits for."""
