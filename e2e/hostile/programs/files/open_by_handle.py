# must: a file handle does not open what lies outside (the shocker exploit)
# status: succeeded
# stdout: name (ENOSYS|EPERM|ENOTSUP)\nopen (ENOSYS|EPERM|ENOTSUP)
import ctypes

handle = ctypes.create_string_buffer(b"\x08\0\0\0\x01\0\0\0\x02\0\0\0\0\0\0\0", 64)  # inode 2: the root of ext4
mount = ctypes.c_int()
attempt("name", syscall, "name_to_handle_at", -100, b"/usr", handle, ctypes.byref(mount), 0)
attempt("open", syscall, "open_by_handle_at", os.open("/usr", os.O_RDONLY), handle, os.O_RDONLY)
