# must: no process of the host is listed, nor its command line
# status: succeeded
# stdout: listed\nclean
for file in /proc/[0-9]*/cmdline; do
	line=$(tr '\0' ' ' < "$file" 2>/dev/null)
	[[ $line == *main.sh* ]] && listed=yes
	[[ $line == *--bundle* || $line == *runsc* || $line == *self_managed* || $line == *infinity* ]] && hit=$line
done
[ "$listed" ] && echo listed
found $hit
