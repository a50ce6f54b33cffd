# must: a program that stops itself is stopped for good at the time limit
# status: timeout
# stdout: stopping
# timeout: 1
echo stopping
kill -STOP $$
