"""What zeus 0.16 documented under other names, for scripts that have not moved yet.

Nothing in the product imports this room: `zeus._former` does when a former name is used. Each name
warns once and names its replacement; those without one fail and say what to use.
docs/from-zeus.md is the page for users.
"""
