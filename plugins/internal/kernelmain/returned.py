# Calls the main of a kernel's namespace. Whoever puts this before a program of its own
# has what main returns as JSON.
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
    try:
        try:
            data = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:  # lone surrogates have no UTF-8 form
            data = json.dumps(value, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as e:
        raise TypeError(f"main must return something that JSON can express: {e}") from None
    if len(data) > request["limit"]:
        raise ValueError(f"main returned {len(data)} bytes of JSON, more than the limit of {request['limit']}")
    return request, data
