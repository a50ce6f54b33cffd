# must: variables and what was changed in modules are gone
# status: succeeded
# stdout: planted
import builtins
import json

planted = builtins.planted = json.planted = True
json.dumps = lambda *a, **k: "planted"
sys.modules["planted"] = json
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import builtins
import json

found(" ".join(
    name for name, it in {
        "global": "planted" in globals(), "builtin": hasattr(builtins, "planted"), "module": "planted" in sys.modules,
        "function": json.dumps({}) == "planted",
    }.items() if it
))
