"""The node agent: one small privileged process per machine that owns the knobs of its GPUs.

Users reach it through a Unix socket; what they hold are leases, which end with their process. Of
Zeus, only the room of devices is used here, and nothing that is not in the standard library.
"""
