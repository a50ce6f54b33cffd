# must: a loop without end in bash is stopped, although it ignores every signal
# status: timeout
# stdout: so far
# timeout: 1
trap '' HUP INT TERM QUIT USR1 USR2
echo so far
while :; do :; done
