"""Everything that may leave a site: who wants to know reads this folder and nothing else.

A site says once what it wants to say of its rows. A `Summary` describes them under one plan, which was fixed before any
row was summarized: no coordinator asks, so no question can be clever. It holds cells, groups of at least the floor of
rows (20), each with its count and the mean and variance of every column (`cells`). Beside these it holds one
covariance, that of all rows about the mean of their cell, along a few axes (`summarize`). One or two values at either
end of a cell count as the next ones, so that no row makes a difference alone. Everything is rounded: half a floor of
rows makes no difference that is seen. There are at most a third as many numbers as the table has values, over all
releases of a table: first there are fewer axes, then coarser cells. The same table and plan give the same bytes. Which
rows make a cell depends on the rows, and a mean of 20 rows says something of each: tests/summary has the figures.

==============  ==============================================================================
`rows`          number of rows
`counts`        (n_cells,) rows of each cell, at least the floor
`means`         (n_cells, n_features) of each column, rounded
`variances`     (n_cells, n_features) of each column, powers of two
`axes`          (n_axes, n_features) of the covariance inside cells, rounded; each as long as the
                standard deviation along it
==============  ==============================================================================
"""
