"""What `rlvr audit` asks of a CVDP problem: answers whose verdict is known beforehand."""
