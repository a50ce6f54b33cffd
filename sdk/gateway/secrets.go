package gateway

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// fill puts secrets in the place of their placeholders. Without TLS there are none to be had.
func (x *exchange) fill(header http.Header, secure bool) error {
	for _, s := range longestFirst(x.secrets, sdk.NetworkSecret.Placeholder) {
		values := header.Values(s.Header)
		for n, value := range values {
			if !strings.Contains(value, s.Placeholder()) {
				continue
			}
			if !secure {
				return refusef("the secret %s goes out over https alone", s.Name)
			}
			values[n] = strings.ReplaceAll(value, s.Placeholder(), s.Value)
		}
	}
	return nil
}

// longestFirst are secrets in an order in which no text of one is taken for that of another one
// that begins with it, or has it in the middle.
func longestFirst(secrets []sdk.NetworkSecret, text func(sdk.NetworkSecret) string) []sdk.NetworkSecret {
	return slices.SortedStableFunc(slices.Values(secrets), func(a, b sdk.NetworkSecret) int { return len(text(b)) - len(text(a)) })
}

func valueOf(s sdk.NetworkSecret) string { return s.Value }

// maskHeader takes secrets out of the headers of an answer.
func (x *exchange) maskHeader(header http.Header) {
	for _, s := range longestFirst(x.secrets, valueOf) {
		for _, values := range header {
			for n := range values {
				values[n] = strings.ReplaceAll(values[n], s.Value, strings.Repeat("*", len(s.Value)))
			}
		}
	}
}

// masked is an answer without the secrets in it. Its length stays.
func (x *exchange) masked(from io.Reader) io.Reader {
	for _, s := range longestFirst(x.secrets, valueOf) {
		from = &mask{from: from, secret: []byte(s.Value)}
	}
	return from
}

// mask replaces a text wherever it is, in whatever pieces it comes. It holds back no more than
// what may be the beginning of one.
type mask struct {
	from   io.Reader
	secret []byte
	held   []byte
	ready  int // how much of it is known to be none
	err    error
}

// Read implements io.Reader.
func (m *mask) Read(p []byte) (int, error) {
	for m.ready == 0 {
		if m.err != nil {
			if len(m.held) == 0 {
				return 0, m.err
			}
			m.ready = len(m.held) // the beginning of one that has no end
			break
		}
		buf := make([]byte, max(len(p), 512))
		n, err := m.from.Read(buf)
		m.err = err
		m.held = append(m.held, buf[:n]...)
		m.look()
	}
	n := copy(p, m.held[:m.ready])
	m.held, m.ready = m.held[n:], m.ready-n
	return n, nil
}

// look replaces what is whole, and finds out what may be the beginning of one.
func (m *mask) look() {
	m.held = bytes.ReplaceAll(m.held, m.secret, bytes.Repeat([]byte("*"), len(m.secret)))
	m.ready = len(m.held)
	for n := min(len(m.secret)-1, len(m.held)); n > 0; n-- {
		if bytes.HasSuffix(m.held, m.secret[:n]) {
			m.ready = len(m.held) - n
			return
		}
	}
}
