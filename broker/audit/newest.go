package audit

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// newestName is the file with the name of the newest one that has had a line on disk. A
// crash may leave one behind it that is empty or torn in its first line; one that is
// named there and is such was changed.
const newestName = "newest"

// markNewest writes down that a file has lines on disk.
func markNewest(dir, path string) error {
	return ondisk.WriteFile(filepath.Join(dir, newestName), []byte(filepath.Base(path)+"\n"), 0o600)
}

// newestOf reads what was written down; there is none in the directory of an earlier
// version, or of a log that never had a line.
func newestOf(dir string) (s Segment, found bool, err error) {
	file, err := os.OpenFile(filepath.Join(dir, newestName), os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) {
		return s, false, nil
	}
	if err != nil {
		return s, false, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, 1<<10))
	if err != nil {
		return s, false, err
	}
	s, found = parseSegment(filepath.Join(dir, strings.TrimSpace(string(text))))
	return s, found, nil
}

var errNoLine = errors.New("nothing in it is a line of the log")

// emptied says why a file without a line is not what a crash leaves: it had lines, or what
// is in it is not the beginning of one.
func emptied(s Segment, hadLines bool) error {
	file, err := os.Open(s.Path)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxLine+1))
	if err != nil {
		return err
	}
	head := text[:min(len(text), len(seqKey))]
	if hadLines || !strings.HasPrefix(seqKey, string(head)) || bytes.IndexByte(text, '\n') >= 0 {
		return errNoLine
	}
	return nil
}
