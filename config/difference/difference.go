// Package difference shows how the files of a configuration differ, for people who are to
// see what a change does before it is made, and are not to see secrets.
//
// Unified is its entry. What is masked is decided by where a value stands: in mask.go. What
// a configuration means is package config's, how files are changed package edit's.
package difference

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// File is one file before and after a change. One that is not there is empty.
type File struct {
	Name          string
	Before, After []byte
}

// Secrets say what is not to be seen.
type Secrets struct {
	// Schemas by the label of a provider. Of a provider without one everything is masked.
	Schemas map[string]sdk.Schema
	// Plugins that these schemas are of, by the label of a provider, where a plugin has
	// another name. A block with another plugin than that has no schema.
	Plugins map[string]string
	// Mask is what is shown of a secret.
	Mask func(secret string) string
}

// context is how many lines around a change are shown.
const context = udiff.DefaultContextLines

// Unified is the unified diff of files, with a few lines around each change; empty if none
// differs. A secret that is another one is a line that differs, also where both are shown
// alike.
func Unified(files []File, secrets Secrets) (string, error) {
	var all strings.Builder
	var maskers [][2]*masker
	var found []string
	for _, f := range files {
		both := [2]*masker{newMasker(f.Name, f.Before, secrets), newMasker(f.Name, f.After, secrets)}
		maskers, found = append(maskers, both), slices.Concat(found, both[0].found, both[1].found)
	}
	// The longest come first: one may be a part of another.
	slices.SortFunc(found, func(a, b string) int { return len(b) - len(a) })
	for i, f := range files {
		if bytes.Equal(f.Before, f.After) {
			continue
		}
		was, is := tagged(string(f.Before), maskers[i][0].result(found)), tagged(string(f.After), maskers[i][1].result(found))
		text, err := udiff.ToUnified(f.Name, f.Name, was, udiff.Lines(was, is), context)
		if err != nil {
			return "", fmt.Errorf("compare %s: %w", f.Name, err)
		}
		for line := range strings.Lines(text) {
			shown, _, hidden := strings.Cut(line, tag)
			all.WriteString(shown)
			if hidden && strings.HasSuffix(line, "\n") {
				all.WriteString("\n")
			}
		}
	}
	return all.String(), nil
}

// tag stands in no file: the parser takes none with it.
const tag = "\x00"

// tagged has behind each line that is shown the sum of that line as it is, so that lines
// which are shown alike and are not the same differ.
func tagged(raw, shown string) string {
	lines, shownLines := strings.SplitAfter(raw, "\n"), strings.SplitAfter(shown, "\n")
	var b strings.Builder
	for i, line := range shownLines {
		text, newline := strings.CutSuffix(line, "\n")
		b.WriteString(strings.ReplaceAll(text, tag, "�"))
		if line != "" {
			sum := sha256.Sum256([]byte(strings.TrimSuffix(lines[min(i, len(lines)-1)], "\n")))
			b.WriteString(tag + hex.EncodeToString(sum[:]))
		}
		if newline {
			b.WriteString("\n")
		}
	}
	return b.String()
}
