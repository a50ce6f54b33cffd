package handover

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// markHeader is put into the request by Hold: the server's own random word and
// the body's length. A client cannot know the word.
const markHeader = "X-Sandbox-Broker-Held"

func newMark() string { return rand.Text() }

// Hold leaves the body of a request on the connection, for the handler that Take
// hands it to. It belongs into fasthttp's HeaderReceived. When nobody takes the
// request, Held says that the connection must be closed.
func (s *Server) Hold(header *fasthttp.RequestHeader) {
	length := header.ContentLength()
	if length == 0 || length < chunked { // there is no body
		return
	}
	header.SetContentLength(0)
	expects := strings.EqualFold(string(header.Peek(fasthttp.HeaderExpect)), "100-continue")
	header.Del(fasthttp.HeaderExpect) // else fasthttp asks for a body that it does not want
	mark := s.mark + " " + strconv.Itoa(length)
	if expects {
		mark += " expected"
	}
	header.Set(markHeader, mark)
}

// chunked is how fasthttp writes the length of a body in chunks.
const chunked = -1

// Held reports whether the body of the request is still on the connection, which
// must be closed then: what is left of a body must not be read as a request.
func (s *Server) Held(header *fasthttp.RequestHeader) bool {
	_, _, held := s.held(header)
	return held
}

func (s *Server) held(header *fasthttp.RequestHeader) (length int, expected, held bool) {
	word, rest, _ := strings.Cut(string(header.Peek(markHeader)), " ")
	if word != s.mark {
		return 0, false, false
	}
	number, _, expected := strings.Cut(rest, " ")
	length, err := strconv.Atoi(number)
	return length, expected, err == nil
}

// headOf writes the head of the request anew, from what fasthttp understood and
// authentication has seen: there are no two readings of it. What fasthttp has read
// of the body follows.
func (s *Server) headOf(fctx *fasthttp.RequestCtx) (io.Reader, error) {
	header := &fctx.Request.Header
	target := string(header.RequestURI())
	if _, err := url.ParseRequestURI(target); err != nil {
		return nil, fmt.Errorf("the path is no URI")
	}
	fields := http.Header{}
	for name, value := range header.All() {
		if field := string(name); isToken(field) && !ours(field) {
			fields.Add(field, string(value))
		}
	}
	var body []byte
	length, expected, held := s.held(header)
	if !held {
		body = bytes.Clone(fctx.Request.Body())
		length = len(body)
	}
	switch {
	case length == chunked:
		fields.Set("Transfer-Encoding", "chunked")
	case length > 0:
		fields.Set("Content-Length", strconv.Itoa(length))
	}
	if expected {
		fields.Set("Expect", "100-continue")
	}

	var b bytes.Buffer
	version := "1.1"
	if !header.IsHTTP11() {
		version = "1.0"
	}
	fmt.Fprintf(&b, "%s %s HTTP/%s\r\nHost: %s\r\n", header.Method(), target, version, host(header))
	if err := fields.Write(&b); err != nil {
		return nil, err
	}
	b.WriteString("\r\n")
	b.Write(body)
	return &b, nil
}

// ours reports whether a field is written by headOf itself.
func ours(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Host", "Content-Length", "Transfer-Encoding", "Trailer", "Expect", markHeader:
		return true
	default:
		return false
	}
}

// host is the request's Host, or empty if net/http would refuse it in words of its
// own.
func host(header *fasthttp.RequestHeader) string {
	name := string(header.Host())
	if strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"#/<>?@\^{|}`+"`", r) }) {
		return ""
	}
	return name
}

func isToken(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}
