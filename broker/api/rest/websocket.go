package rest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/coder/websocket"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// protocolBearer is what a client that cannot set headers puts before its token
// among the subprotocols that it offers: a browser. An address would be logged.
const protocolBearer = "bearer."

// AcceptWebSocket makes a WebSocket of a request. A client that offers
// subprotocols gets one of those given, so that the token is not repeated to it.
func AcceptWebSocket(w http.ResponseWriter, r *http.Request, protocols ...string) (*websocket.Conn, error) {
	if !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return nil, BadRequest(http.StatusBadRequest, "This route speaks WebSocket: the request must be its handshake.")
	}
	if err := checkOrigin(r); err != nil {
		return nil, err
	}
	upgrade := &upgradeWriter{client: w, header: w.Header().Clone()}
	conn, err := websocket.Accept(upgrade, r, &websocket.AcceptOptions{
		Subprotocols: protocols, InsecureSkipVerify: true, // the origin was checked
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil && !upgrade.hijacked {
		return nil, BadRequest(http.StatusBadRequest, "The request is no proper WebSocket handshake.")
	}
	return conn, err
}

// checkOrigin refuses a page of another site. It would need a token anyhow; one
// that a page could use without knowing it, there is not.
func checkOrigin(r *http.Request) error {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return nil // no browser
	}
	if u, err := url.Parse(origin); err == nil && strings.EqualFold(u.Host, r.Host) {
		return nil
	}
	return sdk.Errorf(sdk.CodeNotAllowed, "A page of another origin may not open this.")
}

// upgradeWriter answers a handshake. It takes the connection over first and writes
// the head itself: the server behind it answers each of its connections once and
// would announce that it closes them.
type upgradeWriter struct {
	client   http.ResponseWriter
	header   http.Header
	status   int
	hijacked bool
}

var _ http.Hijacker = (*upgradeWriter)(nil)

// Header implements http.ResponseWriter.
func (u *upgradeWriter) Header() http.Header { return u.header }

// WriteHeader implements http.ResponseWriter.
func (u *upgradeWriter) WriteHeader(status int) { u.status = status }

// Write drops the text of a refusal, for which we have our own.
func (u *upgradeWriter) Write(p []byte) (int, error) { return len(p), nil }

// Hijack implements http.Hijacker.
func (u *upgradeWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(u.client).Hijack()
	if err != nil {
		return nil, nil, err
	}
	u.hijacked = true
	if _, err = fmt.Fprintf(rw, "HTTP/1.1 %d %s\r\n", u.status, http.StatusText(u.status)); err == nil {
		err = u.header.Write(rw)
	}
	if err == nil {
		_, err = rw.WriteString("\r\n")
	}
	if err == nil {
		err = rw.Flush()
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, fmt.Errorf("answer the handshake: %w", err)
	}
	return conn, rw, nil
}
