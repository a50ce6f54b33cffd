package guest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

// workspaceNames are further names of isolation.WorkspaceDir, where the root file system
// has a directory of the name: what programs expect that were written for E2B or for
// DeerFlow.
func workspaceNames() []string { return []string{"/home/user", "/mnt/user-data"} }

// nameWorkspace mounts the workspace under its further names, and returns those that it
// has then. What is written by one name is read by all. Only process 1 of a sandbox does
// so.
func nameWorkspace() (names []string, err error) {
	if os.Getpid() != 1 {
		return nil, nil
	}
	for _, name := range workspaceNames() {
		info, err := os.Lstat(name)
		if err != nil || !info.IsDir() {
			continue
		}
		if err := unix.Mount(isolation.WorkspaceDir, name, "", unix.MS_BIND, ""); err != nil {
			return nil, fmt.Errorf("mount the workspace at %s: %w", name, err)
		}
		names = append(names, name)
	}
	return names, nil
}
