"""The interface to recurring jobs: its commands, its answers, and the client of a server.

`JobsApi` executes commands: here on a server (`RemoteJobs`), in `storage` on a store (`Jobs`).
"""
