package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// ledger is a file with the names under which sandboxes may have been made.
type ledger struct{ file string }

// entry is what a provider finds its sandboxes by: the ID of a broker, the label of its
// provider block, and the place where it made them.
type entry struct {
	broker, label, place string
	at                   time.Time
}

func (e entry) line() string {
	return fmt.Sprintf("%s %s %s %d", e.broker, e.label, e.place, e.at.Unix())
}

// add is on disk when it returns. The line before may have been torn by a kill, so that
// each begins with an end of a line.
func (l ledger) add(e entry) error {
	_, before := os.Stat(l.file)
	f, err := os.OpenFile(l.file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\n" + e.line() + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil && before != nil {
		err = ondisk.SyncDir(filepath.Dir(l.file))
	}
	return err
}

// all leaves out what is no entry: nothing was made with a line that is torn.
func (l ledger) all() ([]entry, error) {
	text, err := os.ReadFile(l.file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var entries []entry
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) != 4 {
			continue
		}
		at, bad := strconv.ParseInt(words[3], 10, 64)
		e := entry{words[0], words[1], words[2], time.Unix(at, 0)}
		same := func(o entry) bool { return o.broker == e.broker && o.label == e.label && o.place == e.place }
		if i := slices.IndexFunc(entries, same); i >= 0 {
			entries[i].at = e.at // the last is the latest
			continue
		}
		if bad == nil {
			entries = append(entries, e)
		}
	}
	return entries, err
}

// keep forgets all but these. A kill leaves the ledger before or after it.
func (l ledger) keep(entries []entry) error {
	if len(entries) == 0 {
		if err := os.Remove(l.file); !errors.Is(err, os.ErrNotExist) {
			return err
		}
		return nil
	}
	var text strings.Builder
	for _, e := range entries {
		fmt.Fprintf(&text, "%s\n", e.line())
	}
	return ondisk.WriteFile(l.file, []byte(text.String()), 0o600)
}
