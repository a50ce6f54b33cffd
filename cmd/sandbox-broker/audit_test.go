package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/e2e/scratch"
)

// newAuditLog writes a log with one effect.
func newAuditLog(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(scratch.Dir(t), "audit")
	log, err := audit.Open(audit.Options{Dir: dir, Logger: hclog.NewNullLogger()})
	assert.NilError(t, err)
	r, err := log.Begin(t.Context(), audit.Effect{Operation: "create_instance"})
	assert.NilError(t, err)
	assert.NilError(t, r.End(audit.Outcome{Status: "succeeded"}))
	assert.NilError(t, log.Close(context.Background()))
	return dir
}

func TestAuditVerify(t *testing.T) {
	dir := newAuditLog(t)
	got := runWith(t, nil, "audit", "verify", dir)
	assert.Equal(t, got.code, 0, got.out+got.err)
	assert.Check(t, is.Contains(got.out, "ok: 5 lines in 1 file, number 1 to 5; 1 effect\n"))
	_, hash, _ := strings.Cut(got.out, "last hash: ")
	hash, _, _ = strings.Cut(hash, "\n")

	got = runWith(t, nil, "audit", "verify", "--expect", hash, dir)
	assert.Equal(t, got.code, 0, got.out+got.err)
	got = runWith(t, nil, "audit", "verify", "--expect", strings.Repeat("0", 64), dir)
	assert.Equal(t, got.code, 1, got.out+got.err)
	assert.Check(t, is.Contains(got.out, "no line with the hash 000"))

	files, err := filepath.Glob(dir + "/*.jsonl")
	assert.NilError(t, err)
	text, err := os.ReadFile(files[0])
	assert.NilError(t, err)
	assert.NilError(t, os.WriteFile(files[0], []byte(strings.Replace(string(text), "create", "delete", 1)), 0o600))
	got = runWith(t, nil, "audit", "verify", files[0])
	assert.Equal(t, got.code, 1, got.out+got.err)
	assert.Check(t, is.Contains(got.out, "line 3: changed: the line does not match its hash"))

	got = runWith(t, nil, "audit", "verify", "--json", dir)
	assert.Equal(t, got.code, 1, got.out+got.err)
	var report audit.Report
	assert.NilError(t, json.Unmarshal([]byte(got.out), &report))
	assert.Equal(t, report.Problem.Line, 3)

	got = runWith(t, nil, "audit", "verify", "--expect", "abc", dir)
	assert.Equal(t, got.code, 1)
	got = runWith(t, nil, "audit", "verify", t.TempDir())
	assert.Equal(t, got.code, 1)
}
