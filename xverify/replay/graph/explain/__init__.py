"""Why a converted graph computes something else than the graph that it was made from."""
