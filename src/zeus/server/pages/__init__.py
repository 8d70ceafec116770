"""Web pages, served by the same process as the API and without external resources.

`layout` has the frame and blocks of every page, and explains how to add one; `routes` lists them.
"""
