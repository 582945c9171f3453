"""The zoo: one folder per model, in the same form as a user's own (see xverify.workload.spec)."""
