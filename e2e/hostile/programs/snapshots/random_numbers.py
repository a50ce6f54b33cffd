# must: no random numbers come twice, in copies of one snapshot either
# status: succeeded
# stdout: [0-9a-f ]+
import random, ssl, uuid  # noqa: E401

print(os.urandom(8).hex(), random.getrandbits(64), ssl.RAND_bytes(8).hex(), uuid.uuid4().hex)
# --- in a copy
# status: succeeded
# stdout: \[\] 4
import random, ssl, uuid  # noqa: E401

drawn = [os.urandom(8).hex(), str(random.getrandbits(64)), ssl.RAND_bytes(8).hex(), uuid.uuid4().hex]
print([n for n in drawn if n in os.environ["PLANTED"].split()], len(set(drawn)))
