package guest

import (
	"errors"
	"fmt"
	"os"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
)

// programs are what a sandbox has of what the guest runs.
type programs struct {
	interpreters map[string]string // paths by language
	npm          string            // "" for none
}

// programDirs are where programs are looked for, as in images that the plugin looks into.
func programDirs() []string { return []string{"/usr/local/bin", "/usr/bin", "/bin"} }

// programsFor are the programs of a request, or those that it has the guest find.
func programsFor(req *guestv1.PrepareRequest) (programs, error) {
	all := programs{interpreters: req.GetInterpreters()}
	if req.GetFindInterpreters() {
		all = findPrograms(programDirs())
		if len(all.interpreters) == 0 {
			return programs{}, errors.New("there is no python3, node or bash in the image of the sandbox: install them there")
		}
	}
	for _, language := range req.GetWarm() {
		if all.interpreters[language] == "" {
			return programs{}, fmt.Errorf("there is no interpreter for %q in the image of the sandbox, which shall be started ahead: install it there", language)
		}
	}
	return all, nil
}

// findPrograms looks for the programs in directories, the first of which counts most.
func findPrograms(dirs []string) programs {
	all := programs{interpreters: map[string]string{}, npm: findProgram(dirs, "npm")}
	for language, names := range map[string][]string{Python: {"python3"}, JavaScript: {"node", "nodejs"}, Bash: {"bash"}} {
		if path := findProgram(dirs, names...); path != "" {
			all.interpreters[language] = path
		}
	}
	return all
}

// findProgram returns the path of the first of some programs that is there, else "".
func findProgram(dirs []string, names ...string) string {
	for _, name := range names {
		for _, dir := range dirs {
			path := dir + "/" + name
			if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
				return path
			}
		}
	}
	return ""
}
