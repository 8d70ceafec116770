"""The interface to pipeline jobs: its methods, and the client of a server.

`PipelinesApi` is implemented here for a server (`RemotePipelines`) and in `storage` for a store
(`Pipelines`).
"""
