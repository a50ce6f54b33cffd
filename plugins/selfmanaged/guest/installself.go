package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// installedName is what the guest is called in the directory that it was installed in.
const installedName = "guest"

// install copies the guest's own program into a directory, for a container whose image has
// none. Who looks there finds all of it or nothing.
func install(dir string) error {
	own, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("open the guest: %w", err)
	}
	defer own.Close()
	part, err := os.CreateTemp(dir, "."+installedName)
	if err != nil {
		return fmt.Errorf("install the guest: %w", err)
	}
	_, err = io.Copy(part, own)
	if err = errors.Join(err, part.Chmod(0o755), part.Close()); err == nil {
		err = os.Rename(part.Name(), filepath.Join(dir, installedName))
	}
	if err != nil {
		return fmt.Errorf("install the guest: %w", errors.Join(err, os.Remove(part.Name())))
	}
	return nil
}
