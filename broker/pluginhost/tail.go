package pluginhost

import (
	"strings"
	"sync"
)

// tailSize is how much of a plugin's standard error is kept for the report of
// its death.
const tailSize = 64 << 10

// tail keeps the last bytes written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
	cut  bool // something was kept no longer
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	// Twice the size is let grow before it is cut, so that a byte is moved
	// once at most.
	t.cut = t.cut || len(p) > tailSize
	t.kept = append(t.kept, p[max(0, len(p)-tailSize):]...)
	if len(t.kept) > 2*tailSize {
		t.cut = true
		t.kept = append([]byte(nil), t.kept[len(t.kept)-tailSize:]...)
	}
	return len(p), nil
}

// text returns at most tailSize bytes, as text that is fit for a log, and whether
// something was before.
func (t *tail) text() (text string, cut bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	text = string(t.kept[max(0, len(t.kept)-tailSize):])
	return strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD")), t.cut || len(t.kept) > tailSize
}
