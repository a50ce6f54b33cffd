# must: watchers of watchers in a ring are refused, and in a chain they end
# status: succeeded
# stdout: ring ELOOP
import select

chain = [select.epoll() for _ in range(200)]
try:
    for a, b in zip(chain, chain[1:]):
        b.register(a)
except OSError:
    pass
ring = select.epoll()
other = select.epoll()
other.register(ring)
attempt("ring", ring.register, other)
