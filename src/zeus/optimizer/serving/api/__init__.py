"""The interface to services on a server: its commands, its answers, its client.

A process that controls a service registers it, reports what it does every few seconds, and says
when it ends. Sums are of the whole run, so that each report makes good for those that were lost.
"""
