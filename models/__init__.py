"""The zoo: one folder per model, with the same files as a user's own folder (see xverify.workload.spec)."""
