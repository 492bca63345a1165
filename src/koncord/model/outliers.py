"""Which row is an outlier of a model; apart, as the help of a command says it and loads nothing else."""

# Quantile of the rows of a Gaussian cluster beyond which a row is an outlier: one in a thousand.
OUTLIER_QUANTILE = 0.999
OUTLIER = -1
