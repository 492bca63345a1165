"""The paper, reproduced: a plan of runs, one row a run, and the tables, figures and verdicts made from the rows."""
