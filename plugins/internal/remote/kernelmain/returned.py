# Calls the main of a kernel's namespace. Whoever puts this before a program of its own
# has what main returns as JSON. It stands behind that of package returned of the SDK.
import base64
import inspect
import json


async def returned(main, encoded):
    """The request, decoded, and what main returns, as bytes of JSON."""
    request = json.loads(base64.b64decode(encoded))
    if not callable(main):
        raise NameError("arguments were given, so the code must define a function main")
    value = main(**json.loads(request["arguments"]))
    if inspect.isawaitable(value):
        value = await value
    data = express(value, request["limit"])
    return request, data
