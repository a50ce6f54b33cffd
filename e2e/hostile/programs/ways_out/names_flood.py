# must: no query leaves the sandbox, and neither thousands of them nor broken ones silence the resolver
# status: succeeded
# stdout: shut gaierror\nnames 3000\nthe first ECONNREFUSED\nbroken \d+\nstill 1
import random, socket

attempt("shut", socket.getaddrinfo, "leak-of-a-secret.example.com", 80)
names = [socket.gethostbyname(f"leak-{n}.wide.example.com") for n in range(3000)]
print("names", len(set(names)))
attempt("the first", socket.create_connection, (names[0], int(HERE.rpartition(":")[2])), 5)

random.seed(1)
question = b"\0\1\1\0\0\1\0\0\0\0\0\0" + b"\4leak\4wide\7example\3com\0" + b"\0\1\0\1"
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    s.connect(("127.0.0.1", 53))
    for n in range(3000):
        broken = bytearray(question)
        for _ in range(random.randint(1, 8)):
            broken[random.randrange(len(broken))] = random.randrange(256)
        s.send(bytes(broken[: random.randint(0, len(broken))]))
    s.send(b"\xc0\x0c" * 2000)
    print("broken", n)
for n in range(100):
    with socket.create_connection(("127.0.0.1", 53), 20) as s:
        s.sendall(random.randbytes(random.randint(0, 5000)))
idle = [socket.create_connection(("127.0.0.1", 53), 20) for _ in range(100)]
print("still", len({a[4][0] for a in socket.getaddrinfo("open.example.com", 80)}))
