# must: no debugger and no service listens in the sandbox
# status: succeeded
# stdout: own\nclean
python3 -c 'import socket, time
s = socket.create_server(("127.0.0.1", 8081)); open("/tmp/listens", "w"); time.sleep(20)' &
until [ -e /tmp/listens ]; do sleep 0.02; done
for port in 9229 9230 5678 22 80 2375 8080 8081; do
	(exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null && open="$open $port"
done
[[ $open == *8081* ]] && echo own
found ${open/8081/}
