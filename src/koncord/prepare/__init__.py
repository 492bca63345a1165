"""Preparation of columns, agreed over the sites: between reading a table and phase 1.

A site describes its columns by sums (`sketch`), the server makes one plan for all of them (`planning`), and the plan is
applied by every site, by the model, and by anyone who predicts with it (`plan`).
"""
