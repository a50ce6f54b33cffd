# must: a fork bomb is stopped at its time limit
# status: timeout
# stdout: begun
# timeout: 2
echo begun
:() { : | : & }
:
while :; do sleep 1; done
