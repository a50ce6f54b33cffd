package gateway

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
)

// Bounds of the head of a request.
const (
	maxHead    = 64 << 10
	maxHeaders = 200
)

var errHead = errors.New("the head of the request is too long")

// malformed is a request that two programs could read differently, or that is none.
type malformed string

// Error returns what is wrong.
func (m malformed) Error() string { return string(m) }

// readHead returns the head of the next request, its empty line included, and takes nothing
// from the reader: what follows is not this request's head. The reader must hold maxHead.
func readHead(r *bufio.Reader) ([]byte, error) {
	for have := 1; ; {
		if _, err := r.Peek(have); err != nil {
			return nil, err
		}
		peeked, _ := r.Peek(r.Buffered())
		if end := bytes.Index(peeked, []byte("\r\n\r\n")); end >= 0 {
			return peeked[:end+4], nil
		}
		if bytes.Contains(peeked, []byte("\n\n")) || bytes.Contains(peeked, []byte("\n\r\n")) && !bytes.Contains(peeked, []byte("\r\n\r\n")) {
			return nil, malformed("a line of the request ends without CR")
		}
		if len(peeked) >= maxHead {
			return nil, errHead
		}
		have = len(peeked) + 1
	}
}

// checkHead refuses what net/http would read, but others might read differently: it is more
// patient than this.
//
// It returns the header Host, which net/http forgets where the address has a host too.
func checkHead(head []byte) (host string, err error) {
	lines := strings.Split(strings.TrimSuffix(string(head), "\r\n\r\n"), "\r\n")
	if len(lines) > maxHeaders {
		return "", malformed("the request has too many headers")
	}
	for _, line := range lines {
		if strings.ContainsFunc(line, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
			return "", malformed("the head of the request has a control character, or a line that ends without CR LF")
		}
	}
	parts := strings.Split(lines[0], " ")
	if len(parts) != 3 || parts[2] != "HTTP/1.1" && parts[2] != "HTTP/1.0" {
		return "", malformed("the request line is none of HTTP/1.1")
	}
	count := map[string]int{}
	var coding string
	for _, line := range lines[1:] {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsFunc(name, func(c rune) bool { return !token(c) }) {
			return "", malformed("a header of the request has no name that is one")
		}
		name = strings.ToLower(name)
		count[name]++
		value = strings.Trim(value, " \t")
		switch name {
		case "content-length":
			if value == "" || strings.Trim(value, "0123456789") != "" {
				return "", malformed("the length of the request is no number")
			}
		case "transfer-encoding":
			coding = value
		case "host":
			host = value
		}
	}
	if count["host"] == 0 && parts[0] == http.MethodConnect && parts[2] == "HTTP/1.0" {
		// http.client of Python wrote it so until 3.12, and with it urllib, requests and pip. The
		// address is all that such a request says of its host.
		count["host"], host = 1, parts[1]
	}
	switch {
	case count["host"] != 1:
		return "", malformed("the request must have one header Host")
	case count["content-length"] > 1 || count["transfer-encoding"] > 1:
		return "", malformed("the request says its length twice")
	case count["content-length"] == 1 && count["transfer-encoding"] == 1:
		return "", malformed("the request says its length in two ways")
	case count["transfer-encoding"] == 1 && coding != "chunked":
		return "", malformed("the request has a coding other than chunked")
	case count["transfer-encoding"] == 1 && strings.HasSuffix(lines[0], "HTTP/1.0"):
		return "", malformed("a request of HTTP/1.0 has no coding")
	}
	return host, nil
}

// token says whether a character can be in the name of a header.
func token(c rune) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// readRequest reads the next request, and what its header Host says. io.EOF means that there is
// none.
func readRequest(r *bufio.Reader) (request *http.Request, host string, err error) {
	head, err := readHead(r)
	if err != nil {
		if errors.Is(err, io.EOF) && r.Buffered() > 0 {
			return nil, "", io.ErrUnexpectedEOF
		}
		return nil, "", err
	}
	if host, err = checkHead(head); err != nil {
		return nil, "", err
	}
	request, err = http.ReadRequest(r)
	if err != nil {
		return nil, "", malformed("the request is none of HTTP: " + bounded(err.Error()))
	}
	return request, host, nil
}
