"""Drawing, for every room that shows something: shapes, sides of plots, labels, colours, units.

A room says what is to be seen, as a `Picture`; this one puts it on paper as SVG without any
library, as PNG by matplotlib, or into a page, by day and by night. It knows nothing of energy.
"""
