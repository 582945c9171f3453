"""PaddlePaddle."""
