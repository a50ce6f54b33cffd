// Package tail keeps the end of what a sandbox says on its standard error, for
// the log line that explains why it ended.
package tail

import (
	"strings"
	"sync"
	"unicode/utf8"
)

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

// maxWords is how much LastWords returns, in bytes.
const maxWords = 300

// LastWords is the line of a text that says why a program ended: the last one,
// or the first of a panic of Go, whose rest is its stack. It is cut to a length
// that fits into a sentence.
func LastWords(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			last = line
			break
		}
		if line != "" {
			last = line
		}
	}
	if len(last) <= maxWords {
		return last
	}
	cut := maxWords
	for cut > 0 && !utf8.RuneStart(last[cut]) {
		cut--
	}
	return last[:cut] + "..."
}
