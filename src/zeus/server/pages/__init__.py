"""Pages for people, served by the same process as the API and without anything from elsewhere.

`layout` is what every page is made of, and says how to add one; `routes` lists those there are.
"""
