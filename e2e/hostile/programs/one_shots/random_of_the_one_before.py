# must: forks of one server draw other random numbers each, of every kind
# status: succeeded
# stdout: seed -?\d+ .*
import random, tempfile, uuid  # noqa: E401

print(seed(), random.random(), random.SystemRandom().random(), uuid.uuid4(), next(tempfile._get_candidate_names()), os.urandom(8).hex())
# --- next one-shot
# status: succeeded
# stdout: handed over\nalike \[\] of 5
import random, tempfile, uuid  # noqa: E401

print(sandbox())
mine = [str(x) for x in (random.random(), random.SystemRandom().random(), uuid.uuid4(), next(tempfile._get_candidate_names()), os.urandom(8).hex())]
print("alike", [x for x in mine if x in os.environ["PLANTED"].split()], "of", len(mine))
