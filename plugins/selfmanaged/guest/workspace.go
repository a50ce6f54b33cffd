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
		if info, err := os.Lstat(name); err == nil && info.IsDir() {
			names = append(names, name)
		}
	}
	return names, mountWorkspace(names)
}

func mountWorkspace(names []string) error {
	for _, name := range names {
		if err := unix.Mount(isolation.WorkspaceDir, name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount the workspace at %s: %w", name, err)
		}
	}
	return nil
}

// emptyWorkspace is empty for the workspace. A further name would go on to lead to what the
// workspace was before.
func emptyWorkspace(names []string) error {
	for _, name := range names {
		if err := unix.Unmount(name, 0); err != nil {
			return fmt.Errorf("unmount %s: %w", name, err)
		}
	}
	if err := empty(isolation.WorkspaceDir); err != nil {
		return err
	}
	return mountWorkspace(names)
}
