package main

import (
	"encoding/json"
	"fmt"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

type auditCommand struct {
	Verify auditVerifyCommand `cmd:"" help:"Check that nothing in an audit log was changed, removed or moved."`
}

type auditVerifyCommand struct {
	Paths  []string `arg:"" name:"path" help:"The directory of the log, or files of it."`
	Expect string   `help:"The hash of a line that must be among them, as an earlier run has printed it." placeholder:"HASH"`
	JSON   bool     `name:"json" help:"Print what was found as JSON."`
}

// Run prints what was found on standard output; exit code 1 says that the log is not
// as it was written.
func (c *auditVerifyCommand) Run(term *terminal) error {
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
		encoder := json.NewEncoder(term.out)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
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
