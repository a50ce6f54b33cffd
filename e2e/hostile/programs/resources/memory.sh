# must: strings that double and are kept are out of memory
# status: out_of_memory
# stdout: before
echo before
x=xxxxxxxxxxxxxxxx
while [ ${#x} -lt 10000000 ]; do x=$x$x; done
for i in {1..19}; do kept[i]=$x; done
while :; do sleep 1000; done
