"""Which row is an outlier of a model; apart, as the help of a command says it and loads nothing else."""

# Quantile of the rows of a Gaussian cluster beyond which a row is an outlier: one in a thousand.
OUTLIER_QUANTILE = 0.999
OUTLIER = -1
# A value farther than so many standard deviations from the center of its cluster is far off. No standard deviation
# counts as less than this share of that of all rows: a column may be constant in a cluster.
FAR_OFF, LEAST_SPREAD = 8.0, 0.5
# Of a cluster with more than this share of its rows far off in a column, and more than a few, these rows are not
# outliers: they may be a cluster of their own.
MOST_FAR_OFF, FEW_FAR_OFF = 0.01, 5
