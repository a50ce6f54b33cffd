package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/broker/store/postgres"
	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/remote"
	"github.com/sandbox-broker/sandbox-broker/config"
)

type auditCommand struct {
	Search remote.AuditSearch `cmd:"" help:"Search the audit log of a broker (administrators)."`
	Verify auditVerifyCommand `cmd:"" help:"Check that nothing in an audit log was changed, removed or moved."`
}

type auditVerifyCommand struct {
	Paths    []string `arg:"" name:"path" help:"The directory of the log, or files of it."`
	Together bool     `help:"Each path is the directory of one broker's log, and they are checked against each other: what one of them has noted of another must be there."`
	Config   string   `short:"c" help:"The configuration of a broker, whose database has noted the ends of the logs too; with --together." placeholder:"FILE"`
	Expect   string   `help:"The hash of a line that must be among them, as an earlier run has printed it." placeholder:"HASH"`
	JSON     bool     `name:"json" help:"Print what was found as JSON."`
}

// Run prints what was found on standard output; exit code 1 says that the log is not
// as it was written.
func (c *auditVerifyCommand) Run(ctx context.Context, term *terminal) error {
	if c.Together {
		return c.together(ctx, term)
	}
	if c.Config != "" {
		return errors.New("--config is for --together")
	}
	var expect *audit.Hash
	if c.Expect != "" {
		hash, err := audit.ParseHash(c.Expect)
		if err != nil {
			return fmt.Errorf("--expect: %w", err)
		}
		expect = &hash
	}
	report, err := audit.Verify(c.Paths, expect)
	if err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(term, report)
	} else {
		err = c.tell(term, report)
	}
	if err == nil && !report.OK {
		err = exitCode(1)
	}
	return err
}

func (c *auditVerifyCommand) tell(term *terminal, r audit.Report) error {
	if r.Problem != nil {
		fmt.Fprintf(term.out, "%s line %d: %s: %s\n", r.Problem.File, r.Problem.Line, r.Problem.Fault, r.Problem.Detail)
		if r.LastHash != "" {
			fmt.Fprintf(term.out, "What stands before it is as it was written, up to number %d: %s\n", r.Last, r.LastHash)
		}
	}
	if r.Expected != nil && !*r.Expected {
		fmt.Fprintf(term.out, "There is no line with the hash %s: lines were removed at the end, or all of it was written anew.\n", c.Expect)
	}
	if !r.OK {
		return nil
	}
	fmt.Fprintf(term.out, "ok: %s in %s, number %d to %d; %s",
		counted(r.Lines, "line"), counted(r.Files, "file"), r.First, r.Last, counted(r.Effects, "effect"))
	if r.Open > 0 {
		fmt.Fprintf(term.out, ", %d of them without an end so far", r.Open)
	}
	fmt.Fprintln(term.out)
	switch {
	case r.Explained:
		fmt.Fprintln(term.out, "Files before these were removed for their age, as the log says.")
	case r.Before != "":
		fmt.Fprintf(term.out, "What was before these files is not checked; they follow on %s\n", r.Before)
	}
	_, err := fmt.Fprintf(term.out, "last hash: %s\nKeep it elsewhere: with --expect it proves later that all this was there.\n", r.LastHash)
	return err
}

func writeJSON(term *terminal, what any) error {
	encoder := json.NewEncoder(term.out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(what)
}

// together checks the logs of several brokers against each other.
func (c *auditVerifyCommand) together(ctx context.Context, term *terminal) error {
	if c.Expect != "" {
		return errors.New("--expect is for the log of one broker, and --together for those of several")
	}
	var kept []audit.Head
	if c.Config != "" {
		cfg, diags := config.Load(c.Config)
		if diags.HasErrors() {
			return diags
		}
		if cfg.Database == "" {
			return fmt.Errorf("--config: the state of the broker of %s is in no database", c.Config)
		}
		var err error
		if kept, err = postgres.AuditHeads(ctx, cfg.Database); err != nil {
			return err
		}
	}
	all, err := audit.VerifyTogether(c.Paths, kept)
	if err != nil {
		return err
	}
	if c.JSON {
		err = writeJSON(term, all)
	} else {
		err = tellTogether(term, all)
	}
	if err == nil && !all.OK {
		err = exitCode(1)
	}
	return err
}

func tellTogether(term *terminal, all audit.Together) error {
	for _, log := range all.Logs {
		switch {
		case log.Problem != nil:
			fmt.Fprintf(term.out, "%s line %d: %s: %s\n", log.Problem.File, log.Problem.Line, log.Problem.Fault, log.Problem.Detail)
		case log.Broker == "":
			fmt.Fprintf(term.out, "%s: number %d to %d, of no broker that it names\n", log.Path, log.First, log.Last)
		default:
			fmt.Fprintf(term.out, "%s: number %d to %d, of broker %s\n", log.Path, log.First, log.Last, log.Broker)
		}
	}
	if all.Problem != nil {
		fmt.Fprintf(term.out, "%s: %s: %s\n", all.Problem.File, all.Problem.Fault, all.Problem.Detail)
	}
	if !all.OK {
		return nil
	}
	if len(all.Absent) > 0 {
		fmt.Fprintf(term.out, "Not checked, since their logs are not here: broker %s\n", strings.Join(all.Absent, ", "))
	}
	_, err := fmt.Fprintf(term.out, "ok: %s in one order, number %d to %d\n", counted(all.Heads, "head"), all.First, all.Last)
	return err
}
