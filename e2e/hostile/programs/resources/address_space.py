# must: an address space without end that nobody fills does no harm
# status: succeeded
# stdout: mapped (SUCCEEDED|ENOMEM)
import mmap

attempt("mapped", mmap.mmap, -1, 1 << 40, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
