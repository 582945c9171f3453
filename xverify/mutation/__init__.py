"""The mutation score: known porting faults are planted in a model, and the verdict must notice, locate and explain them.

It may import engine and everything below it; only commands imports it.
"""
