package pluginhost

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

const (
	// maxLinesPerSecond and maxBytesPerSecond of one plugin reach the log; the
	// number of lines that were dropped does, too.
	maxLinesPerSecond = 500
	maxBytesPerSecond = 256 << 10
	maxLogKeys        = 32
	maxLogValue       = 8 << 10
)

// logKey is what a plugin may call a value; hclog writes keys as they are.
var logKey = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// pluginLog forwards what a plugin writes to the broker's log. The plugin's SDK
// writes hclog's JSON to standard error, everything else is text. go-plugin's
// own reader ends the whole broker when a field has an unexpected type, so it
// never sees these lines.
type pluginLog struct {
	logger hclog.Logger
	// ended is closed when the process is dead.
	ended <-chan struct{}

	mu      sync.Mutex
	second  int64
	written int
	bytes   int
	dropped int
	panics  bool
	hidden  []string
	redact  *redact.Redactor // of them
}

func newPluginLog(logger hclog.Logger, ended <-chan struct{}) *pluginLog {
	return &pluginLog{logger: logger, ended: ended}
}

// hide blanks these words from now on, beside those of earlier calls: a plugin that
// logs its own settings shall not publish them.
func (l *pluginLog) hide(secrets []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known := len(l.hidden)
	for _, secret := range secrets {
		if !slices.Contains(l.hidden, secret) {
			l.hidden = append(l.hidden, secret)
		}
	}
	if len(l.hidden) == known {
		return
	}
	l.redact = redact.New(l.hidden...)
}

// redactor knows what must not be shown.
func (l *pluginLog) redactor() *redact.Redactor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.redact
}

// clean makes text of a plugin fit to be shown.
func (l *pluginLog) clean(text string) string { return l.redactor().Text(text) }

// stream returns a writer for one of the plugin's streams.
func (l *pluginLog) stream(name string) *lines {
	return &lines{ended: l.ended, emit: func(line []byte, cut bool) {
		if l.admit(time.Now().Unix(), len(line)) {
			l.forward(name, line, cut)
		}
	}}
}

// admit counts a line of so many bytes against its second.
func (l *pluginLog) admit(second int64, size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if second != l.second {
		l.second, l.written, l.bytes = second, 0, 0
		l.reportDropped()
	}
	if l.written >= maxLinesPerSecond || l.bytes >= maxBytesPerSecond {
		l.dropped++
		return false
	}
	l.written++
	l.bytes += size
	return true
}

func (l *pluginLog) reportDropped() {
	if l.dropped > 0 {
		l.logger.Warn("the plugin logs too fast", "lines_dropped", l.dropped)
	}
	l.dropped = 0
}

// finish says what is still to be said when the streams have ended.
func (l *pluginLog) finish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reportDropped()
}

func (l *pluginLog) forward(stream string, line []byte, cut bool) {
	line = bytes.TrimRight(line, "\r")
	if len(line) == 0 {
		return
	}
	var entry map[string]any
	if !cut && line[0] == '{' {
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if decoder.Decode(&entry) != nil || decoder.More() {
			entry = nil
		}
	}
	message, isEntry := entry["@message"].(string)
	if !isEntry {
		l.forwardText(stream, string(line), cut)
		return
	}
	word, _ := entry["@level"].(string)
	level := hclog.LevelFromString(word)
	if level == hclog.NoLevel || level == hclog.Off {
		level = hclog.Info
	}
	l.logger.Log(level, l.clean(oneLine(message)), l.pairs(entry)...)
}

// pairs returns the entry's own values in a stable order.
func (l *pluginLog) pairs(entry map[string]any) []any {
	keys := make([]string, 0, len(entry))
	for key := range entry {
		switch {
		case key == "@module":
			keys = append(keys, key)
		case logKey.MatchString(key) && key != "provider":
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	var pairs []any
	for _, key := range keys[:min(len(keys), maxLogKeys)] {
		pairs = append(pairs, l.clean(strings.TrimPrefix(key, "@")), l.logValue(entry[key]))
	}
	return pairs
}

func (l *pluginLog) forwardText(stream, line string, cut bool) {
	level := hclog.Info
	if stream == "stderr" {
		// A Go runtime's last words: all that follows belongs to them.
		l.mu.Lock()
		l.panics = l.panics || strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")
		if l.panics {
			level = hclog.Error
		}
		l.mu.Unlock()
	}
	pairs := []any{"stream", stream}
	if cut {
		pairs = append(pairs, "cut", true)
	}
	text := l.clean(oneLine(line))
	if cut {
		text = l.redactor().Part(oneLine(line))
	}
	l.logger.Log(level, text, pairs...)
}

// logValue is cleaned before it is cut: a piece of a secret would not be known.
func (l *pluginLog) logValue(value any) string {
	text, ok := value.(string)
	if !ok {
		encoded, err := json.Marshal(value)
		if err != nil {
			return fmt.Sprintf("(%T)", value)
		}
		text = string(encoded)
	}
	if text = l.clean(text); len(text) > maxLogValue {
		text = text[:maxLogValue] + "…"
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// oneLine keeps a message from forging further entries or steering a terminal.
func oneLine(text string) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, unprintable) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }
