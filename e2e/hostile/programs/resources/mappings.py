# must: mappings by thousands cost their program alone
# status: succeeded
# stdout: mapped [0-9]+
import mmap

maps = []
try:
    while len(maps) < 20000:
        maps.append(mmap.mmap(-1, 4096))
except (OSError, ValueError):
    pass
print("mapped", len(maps))
