package pluginhost

import (
	"bytes"
	"sync"
)

// maxLogLine bounds one line of a plugin's output; the rest of a longer line is
// dropped.
const maxLogLine = 64 << 10

// lines cuts a stream into lines and gives each to emit.
type lines struct {
	mu   sync.Mutex
	emit func(line []byte, cut bool)
	kept []byte
	cut  bool
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	for {
		line, rest, found := bytes.Cut(p, []byte("\n"))
		if room := maxLogLine - len(l.kept); len(line) > room {
			line, l.cut = line[:room], true
		}
		l.kept = append(l.kept, line...)
		if !found {
			return n, nil
		}
		l.emitLine()
		p = rest
	}
}

// flush gives an unfinished last line to emit.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.emitLine()
}

func (l *lines) emitLine() {
	if len(l.kept) > 0 {
		l.emit(l.kept, l.cut)
	}
	l.kept, l.cut = l.kept[:0], false
}
