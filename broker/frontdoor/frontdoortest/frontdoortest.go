// Package frontdoortest has what the tests of front doors share: sandboxes whose programs
// run on this machine, requests as bytes on the wire, and whether each route of a door has a
// transcript, which is a request and its answer so in a golden file.
package frontdoortest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
)

// exchangeTimeout bounds one request and its answer.
const exchangeTimeout = time.Minute

// Exchange sends a request as it is over a connection of its own, and returns what is
// answered: until the server hangs up, or there is enough of it. Enough may be nil.
func Exchange(address, request string, enough func(got []byte) bool) (answer string, err error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(exchangeTimeout)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	var got bytes.Buffer
	for piece := make([]byte, 32<<10); err == nil && (enough == nil || !enough(got.Bytes())); {
		var n int
		n, err = conn.Read(piece)
		got.Write(piece[:n])
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return got.String(), err
}

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
