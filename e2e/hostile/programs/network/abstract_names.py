# must: no abstract socket of the host is listed
# status: succeeded
# stdout: own True\nclean
import socket

own = socket.socket(socket.AF_UNIX)
own.bind("\0one-of-my-own")
names = [line.split()[-1] for line in open("/proc/net/unix").read().splitlines()[1:] if "@" in line]
print("own", "@one-of-my-own" in names)
found(" ".join(n for n in names if n != "@one-of-my-own"))
