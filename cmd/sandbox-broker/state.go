package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/statedir"
	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/config"
)

type stateCommand struct {
	Check   stateCheckCommand   `cmd:"" help:"Check the state file and its copies."`
	Backup  stateBackupCommand  `cmd:"" help:"Write a verified copy of the state to a file; a broker may run on it."`
	Restore stateRestoreCommand `cmd:"" help:"Make the state file anew: from what is left of it, or from a backup. The broker must be stopped."`
}

// statePlace says which state directory a command is about.
type statePlace struct {
	Config string `short:"c" default:"sandbox.hcl" help:"The configuration file, which names the state directory." placeholder:"FILE"`
	State  string `help:"The state directory, in place of the one that the configuration names." placeholder:"DIR"`
}

func (p statePlace) dir() (string, error) {
	if p.State != "" {
		return p.State, nil
	}
	cfg, diags := config.Load(p.Config)
	if cfg.StateDir == "" || diags.HasErrors() {
		return "", fmt.Errorf("%s cannot be read as a configuration; name the state directory with --state", p.Config)
	}
	if cfg.Database != "" {
		return "", errors.New("the state is in a database: back it up and check it with the database's own means (pg_dump, pg_amcheck)")
	}
	return cfg.StateDir, nil
}

type stateCheckCommand struct {
	statePlace
	JSON bool `name:"json" help:"Print what was found as JSON."`
}

// Run prints what was found on standard output; exit code 1 says that the state file
// cannot be used.
func (c *stateCheckCommand) Run(ctx context.Context, term *terminal) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	files, err := statedir.Check(ctx, dir)
	if err != nil {
		return err
	}
	if c.JSON {
		encoder := json.NewEncoder(term.out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(files)
	} else {
		for _, f := range files {
			if _, err = fmt.Fprintln(term.out, told(f)); err != nil {
				break
			}
		}
	}
	if err == nil && files[0].Problem != "" {
		err = exitCode(1)
	}
	return err
}

// told is a state file in a line or some.
func told(f statedir.File) string {
	if f.Problem != "" {
		return fmt.Sprintf("%s: damaged, of %s\n  %s", f.Path, f.Age.Format(time.RFC3339), f.Problem)
	}
	text := fmt.Sprintf("%s: ok, of %s, transaction %d, %d bytes: %s", f.Path, f.Age.Format(time.RFC3339), f.Transaction, f.Bytes, recordsOf(f.Records))
	for _, warning := range f.Warnings {
		text += "\n  " + warning
	}
	return text
}

// recordsOf counts the records of the buckets that matter to people.
func recordsOf(records map[store.Bucket]int) string {
	return fmt.Sprintf("%s, %s, %s of tenants",
		counted(records[store.Instances], "instance"), counted(records[store.Answers], "kept answer"), counted(records[store.Usage], "counter"))
}

type stateBackupCommand struct {
	statePlace
	File string `arg:"" help:"The file to write. It must not be there yet."`
}

// Run writes a backup and says what is in it.
func (c *stateBackupCommand) Run(ctx context.Context, term *terminal) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	report, err := statedir.Backup(ctx, dir, c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(term.out, "%s: %d bytes, verified: %s\nIt holds answers and labels of all tenants: keep it as safe as the state directory.\n", c.File, report.Bytes, recordsOf(report.Records))
	return err
}

type stateRestoreCommand struct {
	statePlace
	From  string `xor:"source" help:"A backup to take all of it from. Without, what can be read of the state file is taken, and what that lacks from the newest copy beside it." placeholder:"FILE"`
	Empty bool   `xor:"source" help:"Begin with nothing."`
}

// Run restores the state and says what was lost.
func (c *stateRestoreCommand) Run(term *terminal) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	done, err := statedir.Restore(dir, c.From, c.Empty)
	if err != nil {
		return err
	}
	var text strings.Builder
	if done.Aside != "" {
		fmt.Fprintf(&text, "The file that was there is kept as %s\n", done.Aside)
	}
	fmt.Fprintf(&text, "Read from it: %s\n", recordsOf(done.Kept))
	if done.Copy != "" {
		fmt.Fprintf(&text, "Added from %s, which is of %s: %s\n", done.Copy, done.CopyOf.Format(time.RFC3339), recordsOf(done.Added))
	}
	if done.Dropped > 0 {
		fmt.Fprintf(&text, "Lost: %s that could not be read\n", counted(done.Dropped, "record"))
	}
	for _, what := range done.Unreadable {
		fmt.Fprintf(&text, "Lost: %s\n", what)
	}
	text.WriteString(`Whatever has changed since then is lost. At the next start
- instances of clouds that are not in it are destroyed when they are listed, and until then no others are made there;
- a request whose Idempotency-Key is not in it is carried out once more if it is sent again;
- quotas count from what is in it.
`)
	_, err = fmt.Fprint(term.out, text.String())
	return err
}
