# must: what listens on every address listens in the sandbox alone
# status: succeeded
# stdout: listening\n
import socket

servers = [socket.create_server(("0.0.0.0", 47110)), socket.create_server(("::", 47111), family=socket.AF_INET6)]
print("listening")
hold()
# --- meanwhile, elsewhere
# status: succeeded
# stdout: clean
# control: session
import socket

outcomes = []
for host, port in ("127.0.0.1", 47110), ("::1", 47111):
    s = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    if s.connect_ex((host, port)) == 0:
        outcomes.append(host)
found(" ".join(outcomes))
