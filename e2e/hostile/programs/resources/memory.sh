# must: a string that doubles is out of memory
# status: out_of_memory
# stdout: before
echo before
x=xxxxxxxxxxxxxxxx
while :; do x=$x$x; done
