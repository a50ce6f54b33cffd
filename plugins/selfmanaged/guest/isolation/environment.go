package isolation

import (
	"maps"
	"slices"
)

// Environment is what every program starts with, and over it the given variables.
func Environment(given map[string]string) []string {
	all := map[string]string{
		"PATH": "/usr/local/bin:/usr/bin:/bin",
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
