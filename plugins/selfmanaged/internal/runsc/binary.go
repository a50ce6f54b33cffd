package runsc

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
	"github.com/sandbox-broker/sandbox-broker/sdk/hostfile"
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

// CheckBinary finds what makes the runsc that Options.Binary names unusable, without
// starting it; nothing where none is named.
func CheckBinary(named string) error {
	if named == "" {
		return nil
	}
	path, err := filepath.Abs(named)
	if err != nil {
		return err
	}
	return checkBinary(path)
}

// checkBinary finds what makes a runsc unusable, which runsc itself reports only
// as a sandbox that ends at its start.
func checkBinary(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no %s: install gVisor there, or correct the setting `runsc`", path)
	case err != nil:
		return fmt.Errorf("runsc cannot be used: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a directory: name the file in it with the setting `runsc`", path)
	case info.Mode()&0o111 == 0:
		return fmt.Errorf("%s is not executable: chmod a+rx it", path)
	}
	if err := hostfile.CheckWithDirectories(path); err != nil {
		return fmt.Errorf("runsc may be changed by others: %w", err)
	}
	file, err := elf.Open(path)
	if err != nil {
		return nil // a wrapper script; whether it works shows at the first sandbox
	}
	defer file.Close()
	if want := machines[runtime.GOARCH]; want != elf.EM_NONE && file.Machine != want {
		return fmt.Errorf("%s is built for another processor (%s) than this machine's (%s): install the release for this one", path, file.Machine, want)
	}
	for _, section := range file.Progs {
		if section.Type == elf.PT_INTERP {
			return fmt.Errorf("%s is dynamically linked and would fail inside its own chroot: use an official release, or build it with CGO_ENABLED=0", path)
		}
	}
	return nil
}

// machines are the processors that gVisor knows.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// version is what `runsc --version` says, in one line.
func version(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second // for what a wrapper started
	out, err := cmd.Output()
	failed, ended := errors.AsType[*exec.ExitError](err)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%s may not be executed by the broker's user, or its file system is mounted noexec: chmod a+rx it and the directories above, or put it elsewhere", path)
	case errors.Is(err, unix.ENOEXEC), errors.Is(err, fs.ErrNotExist): // the latter: what the first line of a script names
		return "", fmt.Errorf("%s is not a program that this machine can run: install an official release of gVisor", path)
	case ctx.Err() != nil:
		return "", fmt.Errorf("%s --version does not end: install an official release of gVisor", path)
	case ended:
		return "", fmt.Errorf("%s does not even say its version (%w: %q): install an official release of gVisor", path, err, tail.LastWords(string(failed.Stderr)))
	case err != nil:
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimPrefix(first, "runsc version "), nil
}

// CheckPlatform finds out whether kvm is there.
func CheckPlatform(platform string) error {
	if platform != "kvm" {
		return nil
	}
	file, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("the gVisor platform kvm cannot be used (%w): load the module kvm and let the broker's user open the device, or use platform = \"systrap\"", err)
	}
	return file.Close()
}
