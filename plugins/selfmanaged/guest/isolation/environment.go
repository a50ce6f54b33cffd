package isolation

import (
	"maps"
	"os"
	"slices"
)

// ToolsDir and ModulesDir hold commands and modules of Python that stand before those of
// the system, where there are any.
const (
	ToolsDir   = "/run/sandbox/tools"
	ModulesDir = "/run/sandbox/modules"
)

// CodeEnvironment is Environment for programs of user code: they find the tools of the
// sandbox first.
func CodeEnvironment(given map[string]string) []string {
	if _, err := os.Stat(ToolsDir); err != nil {
		return Environment(given)
	}
	all := map[string]string{"PATH": ToolsDir + ":" + path, "PYTHONPATH": ModulesDir}
	maps.Copy(all, given)
	return Environment(all)
}

const path = "/usr/local/bin:/usr/bin:/bin"

// Environment is what every program starts with, and over it the given variables.
func Environment(given map[string]string) []string {
	all := map[string]string{
		"PATH": path,
		"HOME": WorkspaceDir,
		"USER": "sandbox", "LOGNAME": "sandbox", "SHELL": "/bin/bash",
		"LANG": "C.UTF-8", "TMPDIR": "/tmp",
		"PYTHONDONTWRITEBYTECODE": "1", "MPLCONFIGDIR": "/tmp", "MPLBACKEND": "Agg",
	}
	maps.Copy(all, given)
	list := make([]string, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, name+"="+all[name])
	}
	return list
}
