package packages

import "github.com/sandbox-broker/sandbox-broker/sdk"

// What is installed already is a directory that the sandbox sees and cannot change.

// InstalledDir is where an installer of the language puts packages.
func InstalledDir(language sdk.Language) string {
	if language == sdk.JavaScript {
		return NodeDir
	}
	return PythonDir
}

// link puts names of packages that are elsewhere where Python looks for them. As pip does
// with --upgrade, it replaces what has the same name, and leaves the rest.
const link = `
import os, shutil, sys
source, target = sys.argv[1:3]
os.makedirs(target, exist_ok=True)
for name in os.listdir(source):
    path = os.path.join(target, name)
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)
    os.symlink(os.path.join(source, name), path)
`

// unlink puts copies in the place of such names: pip replaces no link.
const unlink = `
import os, shutil, sys
source, target = sys.argv[1:3]
for name in os.listdir(target) if os.path.isdir(target) else ():
    path = os.path.join(target, name)
    if os.path.islink(path) and os.readlink(path).startswith(source + "/"):
        copy = path + ".copy"
        if os.path.isdir(path):
            shutil.copytree(path, copy, symlinks=True)
        elif os.path.exists(path):
            shutil.copy2(path, copy)
        os.remove(path)
        if os.path.exists(copy):
            os.rename(copy, path)
`

// copyInto puts copies of packages where Node looks for them: it would look for what a package
// needs beside the original, and not where other packages were installed.
const copyInto = `
const [source, target] = process.argv.slice(1);
require('node:fs').cpSync(source, target, { recursive: true, force: true, verbatimSymlinks: true });
`

// Layer is the program that gives the sandbox what is installed in a directory that it sees.
func Layer(language sdk.Language, interpreter, dir string) (argv []string) {
	if language == sdk.JavaScript {
		return []string{interpreter, "-e", copyInto, "--", dir, NodeDir}
	}
	return []string{interpreter, "-I", "-S", "-c", link, dir, PythonDir}
}

// Own is the program that makes all that Layer has linked the sandbox's own, so that an
// installer can replace it. Layers are below dir.
func Own(interpreter, dir string) (argv []string) {
	return []string{interpreter, "-I", "-S", "-c", unlink, dir, PythonDir}
}
