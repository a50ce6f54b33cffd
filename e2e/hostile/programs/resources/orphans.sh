# must: daemons that leave their parents are gone with their execution
# status: succeeded
# stdout: left
for i in {1..20}; do
	(setsid sleep 1000 >/dev/null 2>&1 < /dev/null & ) &
done
wait
echo left
# --- next execution
# status: succeeded
# stdout: clean
# control: together

found $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' ' ' | grep -o 'sleep 100[0]' | head -n 1)
