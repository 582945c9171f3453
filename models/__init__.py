"""The zoo: one folder a model, in the same form as a user's own (see xverify.workload.spec)."""
