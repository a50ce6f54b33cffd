package main

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// checksums writes SHA256SUMS, which `sha256sum --check` reads, of all files of the release.
func (r *release) checksums() error {
	const name = "SHA256SUMS"
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var sums strings.Builder
	for _, entry := range entries {
		if !entry.Type().IsRegular() || entry.Name() == name {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.out, entry.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), entry.Name())
	}
	return r.write(name, []byte(sums.String()))
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
