"""How few rows a number that leaves a site may stand for."""

# Rows that every mean, sum and count a site sends stands for at least, by default. Below 5, micro-clusters can show who
# was in a table; from 20 on they hardly can, and Consensus finds clusters best by micro-clusters
# of about 20. Light to import: the options of the command line name it.
DEFAULT_MIN_REPORT = 20
# The way out of a run in which every site has too few rows.
LOWER_FLOOR = "A smaller 'min_report' (--min-report) lets sites report of fewer rows."
