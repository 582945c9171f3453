"""What a result file says of the request, the reference, its weights and inputs."""
