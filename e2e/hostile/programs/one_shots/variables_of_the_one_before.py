# must: variables of a request are not those of the one-shot after it
# status: succeeded
# stdout: seed -?\d+
# env: OF_THE_FIRST=secret
# env: TZ=Asia/Tokyo
# env: PYTHONSTARTUP=/workspace/x.py
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\nclean
# control: together
import ctypes

print(sandbox())
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
found(" ".join(n for n in ("OF_THE_FIRST", "TZ", "PYTHONSTARTUP") if n in os.environ or libc.getenv(n.encode())) or ("TZ" if time.timezone else ""))
