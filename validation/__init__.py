"""Predictions against reality.

Captures of the same workloads under several policies, and what replays say of them.

``make validate`` runs ``python -m validation.run FOLDER --pairs pairs.tsv -o docs/validation.md``.
Only this folder knows the names of the lab's tasks: which task a workload's argument means is the
question that a user would put.
"""
