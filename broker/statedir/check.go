package statedir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// notAnothers refuses a directory with other people's things in it: closing /tmp
// or somebody's home to everybody else is not what a wrong setting should do. It refuses
// one as well in which others could have put what the broker would believe.
func notAnothers(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return sdk.Errorf(sdk.CodeInvalidConfig, "%s is not a directory; choose another one (state = ...)", path)
	}
	open := info.Mode().Perm()&0o077 != 0
	closed := closedInfo{info}
	if err := privatefile.Check(path, closed); err != nil || !open {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	entries = slices.DeleteFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "lost+found" }) // of a volume's own
	isLock := func(entry fs.DirEntry) bool { return entry.Name() == lockName }
	switch {
	case len(entries) == 0:
		return nil
	case !slices.ContainsFunc(entries, isLock):
		return fmt.Errorf("%s is open to others and holds what no broker made; choose a directory for the broker alone (state = ...)", path)
	case info.Mode().Perm()&0o022 != 0:
		return privatefile.Check(path, info)
	default:
		return nil
	}
}

// closedInfo is a directory as it will be when it is closed, so that its owner alone is
// looked at.
type closedInfo struct{ fs.FileInfo }

func (i closedInfo) Mode() fs.FileMode { return i.FileInfo.Mode() &^ 0o077 }

// providersName is the directory below which the processes of providers have theirs. What
// is in those is their business.
const providersName = "providers"

// checkEntries refuses what lies in a state directory and is open to others, belongs to
// somebody else, or is nothing that a broker makes: a pipe in the place of a file, for
// example. A socket is one that a broker before this one has left.
func checkEntries(path string) error {
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == "lost+found" {
			continue
		}
		name := filepath.Join(path, e.Name())
		info, err := os.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case ours(e.Name()) && !info.Mode().IsRegular():
			return sdk.Errorf(sdk.CodeInvalidConfig, "%s is not an ordinary file; move it away and put the file there, or nothing", name)
		case info.Mode().IsRegular(), info.IsDir():
			if err := privatefile.Check(name, info); err != nil {
				return err
			}
		case info.Mode().Type() != fs.ModeSocket && e.Name() == providersName:
			return sdk.Errorf(sdk.CodeInvalidConfig, "%s is not a directory; move it away", name)
		}
	}
	return nil
}

// ours reports whether a file of that name is the broker's.
func ours(name string) bool {
	return name == lockName || name == "broker_id" || name == "preview_key" || name == "state.db" || strings.HasPrefix(name, "state.db.copy")
}

// privateDir makes a directory that nobody else may look into.
func privateDir(path string) error {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o077 == 0 {
		return nil
	}
	return os.Chmod(path, 0o700)
}

var brokerIDForm = regexp.MustCompile(`^[a-z2-7]{26}$`)

// readBrokerID reads the ID, "" if there is none yet. It must not change: instances in
// clouds are found by it.
func readBrokerID(path string) (string, error) {
	text, err := privatefile.Read(path, 1<<10)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("broker ID: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if !brokerIDForm.MatchString(id) {
		return "", fmt.Errorf("%s does not hold a broker ID; restore it, or remove it: then the one that state.db names is used, if it names one", path)
	}
	return id, nil
}
