"""A recurring job: its specification, the events of its trials, and the log that they form.

Pure values and rules; nothing here knows a database, a server or a GPU.
"""
