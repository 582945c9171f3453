"""xverify put to the test on the machine where it runs: what it says of speeds that are known beforehand."""
