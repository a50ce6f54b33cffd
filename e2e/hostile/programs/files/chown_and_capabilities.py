# must: a file cannot be given to root, nor capabilities
# status: succeeded
# stdout: chown EPERM\ngroup EPERM\ncapability (EPERM|ENOTSUP)\ntrusted (EPERM|ENOTSUP)
open("f", "w").close()
attempt("chown", os.chown, "f", 0, 0)
attempt("group", os.chown, "f", -1, 0)
attempt("capability", os.setxattr, "f", "security.capability", bytes.fromhex("0100000200200000") + bytes(12))
attempt("trusted", os.setxattr, "f", "trusted.overlay.opaque", b"y")
os.remove("f")
