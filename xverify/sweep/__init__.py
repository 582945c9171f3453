"""Many runs: the cells of a matrix of models, tasks, batch sizes and other settings, on this machine or on a cluster."""
