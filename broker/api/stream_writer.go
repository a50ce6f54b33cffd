package api

import (
	"bufio"
	"io"
	"net"
	"net/http"
)

// streamWriter knows whether an answer has begun, and with which status. It has
// all abilities of the http.ResponseWriter behind it.
type streamWriter struct {
	http.ResponseWriter
	status int // 0 until the answer begins
	// tenant is whom the log names, where no token has said it.
	tenant string
}

var (
	_ http.Flusher  = (*streamWriter)(nil)
	_ http.Hijacker = (*streamWriter)(nil)
	_ io.ReaderFrom = (*streamWriter)(nil)
)

// Unwrap is for http.ResponseController.
func (w *streamWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (w *streamWriter) WriteHeader(status int) {
	if status >= http.StatusOK || status == http.StatusSwitchingProtocols {
		w.begin(status)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *streamWriter) Write(p []byte) (int, error) {
	w.begin(http.StatusOK)
	return w.ResponseWriter.Write(p)
}

// ReadFrom implements io.ReaderFrom.
func (w *streamWriter) ReadFrom(r io.Reader) (int64, error) {
	w.begin(http.StatusOK)
	return io.Copy(w.ResponseWriter, r)
}

// Flush implements http.Flusher.
func (w *streamWriter) Flush() {
	w.begin(http.StatusOK)
	_ = http.NewResponseController(w.ResponseWriter).Flush() // a failure shows in the next write
}

// Hijack implements http.Hijacker.
func (w *streamWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err == nil {
		w.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

func (w *streamWriter) begin(status int) {
	if w.status == 0 {
		w.status = status
	}
}
