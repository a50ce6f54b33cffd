# Calls the main of a kernel's namespace and tells what it returns, in a frame among the
# output.
import base64
import inspect
import json
import sys


async def call(main, encoded):
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
    sys.stdout.write(request["marker"] + base64.b64encode(data).decode() + ";")
    sys.stdout.flush()
