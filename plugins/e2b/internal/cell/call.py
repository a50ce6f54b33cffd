# Tells what main returns in a frame among the output. It stands behind returned.py.
import sys


async def call(main, encoded):
    request, data = await returned(main, encoded)
    sys.stdout.write(request["marker"] + base64.b64encode(data).decode() + ";")
    sys.stdout.flush()
