"""The interface to pipeline jobs: its commands, its answers, and the client of a server.

`PipelinesApi` executes commands: here on a server (`RemotePipelines`), in `storage` on a store
(`Pipelines`).
"""
