// Package tail keeps the end of what a sandbox says on its standard error, for
// the log line that explains why it ended.
package tail

import "sync"

// size is how much is kept, in bytes.
const size = 8 << 10

// Buffer keeps the last few kilobytes of what is written to it. The zero value
// is ready; it may be used by several goroutines.
type Buffer struct {
	mu  sync.Mutex
	buf []byte
}

// Write implements io.Writer and never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf = append(b.buf, p...)
	if over := len(b.buf) - size; over > 0 {
		b.buf = append(b.buf[:0], b.buf[over:]...)
	}
	return len(p), nil
}

// String is what was kept.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.buf)
}
