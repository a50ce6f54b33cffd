# must: no socket stands anywhere in the file system
# status: succeeded
# stdout: own\nclean
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("/tmp/own.sock")'
sockets=$(find / -xdev -path /proc -prune -o -type s -print 2>/dev/null; find /run /tmp /dev -type s 2>/dev/null)
rm /tmp/own.sock
[[ $sockets == */tmp/own.sock* ]] && echo own
found $(grep -v /tmp/own.sock <<<"$sockets")
