# must: nothing in /sys can be written
# status: succeeded
# stdout: tried True\nclean
written, tried = [], 0
for top, _, names in os.walk("/sys"):
    for name in names:
        tried += 1
        try:
            os.close(os.open(os.path.join(top, name), os.O_WRONLY))
            written.append(os.path.join(top, name))
        except OSError:
            pass
print("tried", tried > 0 or not os.path.exists("/sys/devices"))
found(" ".join(written))
