# must: children, pipes and signals work as everywhere
# status: succeeded
# stdout: 3\nended
printf '1\n2\n3\n' | tail -n 1
sleep 100 &
kill $!
wait $! 2>/dev/null || echo ended
