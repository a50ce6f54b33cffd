# must: a module in /workspace can be imported by the code that asks for it
# status: succeeded
# stdout: written
open("/workspace/mine.py", "w").write("x = 'mine'\n")
print("written")
# --- next execution
# status: succeeded
# stdout: mine
import mine

print(mine.x)
