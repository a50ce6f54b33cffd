# What a script is asked to do: base64 of JSON as its argument, or, if that were too long
# for one, the name of a file that has the JSON. This file is the first of each script.
import base64, json, os, sys


def asked():
    argument = sys.argv[1]
    if not argument.startswith("/"):
        return json.loads(base64.b64decode(argument))
    with open(argument, "rb") as f:
        text = f.read()
    try:
        os.unlink(argument)
    except OSError:
        pass  # it may be another user's
    return json.loads(text)
