"""The interface to recurring jobs: its commands, its answers, and the client of a server.

`JobsApi` is implemented here for a server (`RemoteJobs`) and in `storage` for a store (`Jobs`).
"""
