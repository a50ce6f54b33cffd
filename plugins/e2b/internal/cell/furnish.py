# Gives a new kernel its environment and its directory. The name request stands for them.
import base64
import json
import os

wanted = json.loads(base64.b64decode(request))
os.environ.update(wanted["env"])
try:
    os.chdir(wanted["cwd"])
except OSError:
    pass  # it may have been removed
