# must: what code changes in modules, hooks and the collector is not changed in the next fork
# status: succeeded
# stdout: planted
import builtins, collections, ctypes, datetime, gc, inspect, io, json, linecache, random, re, signal, threading, types  # noqa: E401

for module in collections, inspect, io, json, linecache, random, re, types, os, ctypes:
    module.planted = builtins.planted = True
json.loads = json.dumps = io.open = None
gc.callbacks.append(lambda phase, info: None)
gc.set_threshold(1)
gc.unfreeze()
sys.addaudithook(lambda *a: None)
sys.path_importer_cache.clear()
sys.path.clear()
re.purge()
random.seed(1)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
threading.excepthook = sys.excepthook = sys.unraisablehook = None
ctypes.memmove(id(11111) + 24, (ctypes.c_int * 1)(5), 4)
print("planted")
# --- next execution
# status: succeeded
# stdout: clean
# control: together
import builtins, gc, io, json, random, signal  # noqa: E401

found(
    " ".join(
        name
        for name, bad in {
            "builtins": hasattr(builtins, "planted"), "json": json.loads is None, "open": io.open is None, "callbacks": bool(gc.callbacks),
            "threshold": gc.get_threshold()[0] == 1, "random": random.Random(1).getstate() == random.getstate(),
            "signal": signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, "path": not sys.path,
        }.items()
        if bad
    )
)  # fmt: skip
