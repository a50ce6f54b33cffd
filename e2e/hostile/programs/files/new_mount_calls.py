# must: fsopen, open_tree and move_mount mount nothing either
# status: succeeded
# stdout: fsopen (ENOSYS|EPERM)\nopen_tree (ENOSYS|EPERM)\nmove_mount (ENOSYS|EPERM)\npivot_root EPERM
attempt("fsopen", syscall, "fsopen", b"tmpfs", 0)
attempt("open_tree", syscall, "open_tree", -100, b"/", 1)
attempt("move_mount", syscall, "move_mount", -100, b"/tmp", -100, b"/usr", 0)
attempt("pivot_root", syscall, "pivot_root", b"/tmp", b"/tmp")
