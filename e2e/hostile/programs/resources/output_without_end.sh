# must: output without end is cut and stopped at the time limit
# status: timeout
# stdout: (y\n)+
# bytes: 1048576
# timeout: 1
# truncated: yes
yes
