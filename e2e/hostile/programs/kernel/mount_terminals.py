# must: nobody mounts other terminals, nor uncovers those of the sandbox
# status: succeeded
# stdout: mount EPERM\nuncover EPERM\nbind EPERM
import ctypes

attempt("mount", syscall, "mount", ctypes.c_char_p(b"devpts"), ctypes.c_char_p(b"/tmp"), ctypes.c_char_p(b"devpts"), 0, ctypes.c_char_p(b"newinstance"))
attempt("uncover", syscall, "umount2", ctypes.c_char_p(b"/dev/pts"), 2)
attempt("bind", syscall, "mount", ctypes.c_char_p(b"/dev/pts"), ctypes.c_char_p(b"/tmp"), None, 4096, None)
