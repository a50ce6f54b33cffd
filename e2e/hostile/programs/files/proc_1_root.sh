# must: process 1 is closed: its root, directory, descriptors, memory
# status: succeeded
# stdout: root Permission denied\ncwd Permission denied\nfd Permission denied\nmem Permission denied\nexe Permission denied
attempt root ls /proc/1/root/
attempt cwd ls /proc/1/cwd/
attempt fd ls /proc/1/fd/
attempt mem head -c 1 /proc/1/mem
attempt exe head -c 1 /proc/1/exe
