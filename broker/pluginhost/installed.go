package pluginhost

import (
	"os"
	"strings"
)

// Installed is an executable that lies in a plugin directory.
type Installed struct {
	Name, Path string
	// Version is another one when the file is.
	Version string
}

// InstalledIn lists the executables of a plugin directory that the broker would start,
// by name. What it would refuse, such as what others may change, is left out, and so
// are hidden files.
func InstalledIn(dir string) []Installed {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil // whoever starts a plugin from there is told why
	}
	var list []Installed
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") {
			continue
		}
		exe, err := openExecutable(dir, entry.Name(), "")
		if err != nil {
			continue
		}
		list = append(list, Installed{Name: exe.name, Path: exe.path, Version: exe.version})
		exe.close()
	}
	return list
}
