package guest

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
)

// secureDirectories gives the directories the modes that self-managed sandboxes start
// with. Those of a pod are volumes that everybody may write, and from which everybody
// may remove what others have there: runners, too.
func secureDirectories() error {
	if os.Geteuid() != 0 {
		return nil
	}
	for _, dir := range []string{filepath.Dir(RunDir), RunDir} {
		if err := forbidOthers(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{isolation.WorkspaceDir, TemporaryDir, SharedMemoryDir} {
		if err := openToOthers(dir); err != nil {
			return err
		}
	}
	return nil
}

// forbidOthers lets only root write in a directory.
func forbidOthers(dir string) error {
	info, err := os.Stat(dir)
	if os.IsNotExist(err) {
		return nil // the guest makes it
	} else if err != nil {
		return err
	}
	if info.Mode().Perm()&0o022 == 0 {
		return nil
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return fmt.Errorf("keep others from writing in %s: %w", dir, err)
	}
	return nil
}

// openToOthers lets everybody write in a directory, and remove what is their own.
func openToOthers(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	const open = os.ModeSticky | 0o777
	if info.Mode()&open == open {
		return nil
	}
	// Some volumes, such as those of NFS, let nobody change the mode of their root.
	if err := os.Chmod(dir, open); err != nil && info.Mode()&0o002 == 0 {
		return fmt.Errorf("%s cannot be written by the user of the code, and not be made so: it must be a volume: %w", dir, err)
	}
	return nil
}
