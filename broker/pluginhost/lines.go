package pluginhost

import (
	"bytes"
	"sync"
	"time"
)

// maxLogLine bounds one line of a plugin's output; the rest of a longer line is
// dropped.
const maxLogLine = 64 << 10

// maxOutputPerSecond is how fast a plugin's output is taken, in bytes. Nobody
// writes that much by mistake, and even to drop it costs processor time, which is
// the plugin's rather than ours when it has to wait.
const maxOutputPerSecond = 16 << 20

// lines cuts a stream into lines and gives each to emit.
type lines struct {
	mu   sync.Mutex
	emit func(line []byte, cut bool)
	// ended is closed when there will not be much more: then nobody waits.
	ended <-chan struct{}
	kept  []byte
	cut   bool
	since time.Time
	taken int
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(p)
	l.pace(n)
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

// pace waits when too much has come within a second.
func (l *lines) pace(n int) {
	now := time.Now()
	if now.Sub(l.since) >= time.Second {
		l.since, l.taken = now, 0
	}
	if l.taken += n; l.taken <= maxOutputPerSecond {
		return
	}
	next := time.NewTimer(time.Second - now.Sub(l.since))
	defer next.Stop()
	select {
	case <-next.C:
	case <-l.ended:
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
