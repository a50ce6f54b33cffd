package runsc

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// findBinary returns the runsc to use: the one that was named, else the first on
// the PATH, else one beside the guest.
func findBinary(named, guest string) (string, error) {
	if named != "" {
		return filepath.Abs(named)
	}
	if path, err := exec.LookPath("runsc"); err == nil {
		return filepath.Abs(path)
	}
	beside := filepath.Join(filepath.Dir(guest), "runsc")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	return "", errors.New("runsc is not on the PATH: install gVisor, or name the binary with the setting `runsc`")
}

// checkBinary finds what makes a runsc unusable, which runsc itself reports only
// as a sandbox that ends at its start.
func checkBinary(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("runsc cannot be used: %w", err)
	}
	if info.IsDir() || info.Mode()&0o111 == 0 {
		return fmt.Errorf("%s is not executable: chmod a+rx it", path)
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil // a wrapper script; whether it works shows at the first sandbox
	}
	defer file.Close()
	for _, section := range file.Progs {
		if section.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked and would fail inside its own chroot: use an official release, or build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// version is what `runsc --version` says, in one line.
func version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "runsc version "), nil
}
