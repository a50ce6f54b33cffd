// Package frontdoortest has what the tests of front doors share: whether each route of a
// door has a transcript, which is a request and its answer as bytes on the wire in a golden
// file.
package frontdoortest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

// Untranscribed returns the operations, as METHOD PATH, of which no file testdata/*.golden
// has a request below mount, such as /ragflow.
func Untranscribed(operations []rest.Operation, mount string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.golden"))
	if err != nil {
		return nil, err
	}
	request, err := regexp.Compile(`(?m)^(?:>>> )?([A-Z]+) ` + regexp.QuoteMeta(mount) + `([^ ?\n]*)[^ \n]* HTTP/1\.1$`)
	if err != nil {
		return nil, err
	}
	shown := make([]bool, len(operations))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading a transcript: %w", err)
		}
		for _, line := range request.FindAllStringSubmatch(string(text), -1) {
			if n := answering(operations, line[1], line[2]); n >= 0 {
				shown[n] = true
			}
		}
	}
	var missing []string
	for n, op := range operations {
		if !shown[n] {
			missing = append(missing, op.Method+" "+op.Path)
		}
	}
	slices.Sort(missing)
	return missing, nil
}

// answering finds the operation that a request leads to: of several the one that says most
// of its path. It is -1 for none.
func answering(operations []rest.Operation, method, path string) (found int) {
	found, best := -1, -1
	for n, op := range operations {
		if said := saidOf(op.Path, path); op.Method == method && said > best {
			found, best = n, said
		}
	}
	return found
}

// saidOf is how many segments of a path a pattern has as they are, -1 where it is another
// path's.
func saidOf(pattern, path string) (said int) {
	want, got := strings.Split(pattern, "/"), strings.Split(path, "/")
	for n, segment := range want {
		switch {
		case n >= len(got):
			return -1
		case segment == "*":
			return said
		case segment == got[n]:
			said++
		case !strings.HasPrefix(segment, "{") || got[n] == "":
			return -1
		}
	}
	if len(want) != len(got) {
		return -1
	}
	return said
}
