package sdk_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
)

// leastComments is the part of the contract's lines that are comments. Authors read this
// package and no other: what a method may be called with, which errors it returns and in
// which unit a number is stands beside it.
const leastComments = 0.35

// The measure is lines that begin with // by all lines, empty ones too, of the files of
// this package that are no tests.
func TestTheContractIsExplainedWhereItStands(t *testing.T) {
	files, err := filepath.Glob("*.go")
	assert.NilError(t, err)
	comments, all := 0, 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := os.Open(name)
		assert.NilError(t, err)
		lines := bufio.NewScanner(file)
		for lines.Scan() {
			all++
			if strings.HasPrefix(strings.TrimSpace(lines.Text()), "//") {
				comments++
			}
		}
		assert.NilError(t, lines.Err())
		assert.NilError(t, file.Close())
	}
	part := float64(comments) / float64(all)
	assert.Assert(t, part >= leastComments, "%d of %d lines are comments: %.1f %%", comments, all, 100*part)
}
