"""A pipeline job: its ranks, what they report, and the plans that follow.

Pure values and rules; nothing here knows a database, a server or a GPU.
"""
