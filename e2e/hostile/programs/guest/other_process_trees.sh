# must: only one's own processes are listed, not the interpreters that wait
# status: succeeded
# stdout: own\nclean
for file in /proc/[0-9]*/cmdline; do
	line=$(tr '\0' ' ' < "$file" 2>/dev/null)
	[[ $line == *main.sh* ]] && own=yes
	[[ $line == *runner.py* || $line == *runner.js* ]] && hit=$line
done
[ "$own" ] && echo own
found $hit
