# must: a crowd of processes that write at once is stopped like one
# status: timeout
# stdout: [hostile\n]+
# timeout: 1
# truncated: yes
for i in {1..20}; do yes hostile & done
wait
