# Does with a cell what IPython's kernel does: runs it in the namespace of the kernel,
# from within a task of an event loop. It runs the cells that are named, one after the
# other, and shows what is left of the kernel afterwards.
import asyncio
import os
import sys

namespace = {"__name__": "__main__"}
before = dict(os.environ), os.getcwd(), list(sys.path), list(sys.argv), sys.modules["__main__"], sys.stdout, sys.stderr


async def cells():
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    for name in sys.argv[1:]:
        with open(name) as f:
            source = f.read()
        exec(compile(source, "<ipython-input>", "exec"), namespace)
        assert asyncio.get_running_loop() is loop and asyncio.current_task() is task
        await asyncio.sleep(0)


asyncio.run(cells())
after = dict(os.environ), os.getcwd(), list(sys.path), list(sys.argv), sys.modules["__main__"], sys.stdout, sys.stderr
assert before == after, "the kernel is not what it was"
assert set(namespace) <= {"__name__", "__builtins__"}, "the kernel has new names"
