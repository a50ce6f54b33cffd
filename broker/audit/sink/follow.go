package sink

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Log is what is followed; audit.Log is it.
type Log interface {
	// Dir holds the files.
	Dir() string
	// Last is the number of the last line that may be sent; more is closed when
	// there is another.
	Last() (seq uint64, more <-chan struct{})
}

// Sender takes lines elsewhere.
type Sender interface {
	// Send returns when the other side has taken the lines, as far as can be known.
	// They have no newlines.
	Send(ctx context.Context, lines [][]byte) error
	// Close ends what Send has left open.
	Close()
}

// Bounds of what is sent at once.
const (
	maxLines = 500
	maxBytes = 1 << 20
)

// Pauses after a failure double from the one to the other, each spread by a half either
// way.
const (
	minPause = 500 * time.Millisecond
	maxPause = time.Minute
)

// Follower sends the lines of a log to one place, in order.
type Follower struct {
	name   string
	log    Log
	sender Sender
	logger hclog.Logger
	stop   chan struct{}

	sent atomic.Uint64 // the last line that was
	at   place
}

// place is where the next line stands.
type place struct {
	first  uint64 // of the file
	offset int64
}

// NewFollower returns a follower that Run starts. It goes on after the last line
// that one of that name has sent; the first of that name begins with what comes from
// now on.
func NewFollower(name string, log Log, sender Sender, logger hclog.Logger) (*Follower, error) {
	f := &Follower{name: name, log: log, sender: sender, logger: logger, stop: make(chan struct{})}
	last, _ := log.Last()
	sent, err := f.readCursor()
	switch {
	case errors.Is(err, os.ErrNotExist):
		sent, err = last, f.keep(last)
	case err == nil && sent > last:
		logger.Warn("the audit log is another one than was sent before; all of it is sent", "sink", name)
		sent, err = 0, f.keep(0)
	}
	if err != nil {
		return nil, fmt.Errorf("audit log: %s: %w", name, err)
	}
	f.sent.Store(sent)
	return f, nil
}

// Behind is how many lines are still to be sent.
func (f *Follower) Behind() uint64 {
	last, _ := f.log.Last()
	return last - min(f.sent.Load(), last)
}

// Stop asks Run to end as soon as everything is sent, or cannot be. It is called once.
func (f *Follower) Stop() { close(f.stop) }

// Run sends lines until Stop is called or ctx ends.
func (f *Follower) Run(ctx context.Context) {
	defer f.sender.Close()
	pauses := &backoff.ExponentialBackOff{InitialInterval: minPause, MaxInterval: maxPause, Multiplier: 2, RandomizationFactor: 0.5}
	failing := false
	for {
		last, more := f.log.Last()
		err := f.send(ctx, last)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			f.logger.Error("lines of the audit log cannot be sent; they stay in the files and are tried again", "sink", f.name, "behind", f.Behind(), "error", err)
		case err == nil && failing:
			f.logger.Info("lines of the audit log are sent again", "sink", f.name)
		}
		failing = err != nil
		var again <-chan time.Time
		if failing {
			more, again = nil, time.After(pauses.NextBackOff())
		} else {
			pauses.Reset()
		}
		select {
		case <-ctx.Done():
			return
		case <-f.stop:
			if now, _ := f.log.Last(); err != nil || f.sent.Load() >= now {
				return
			}
		case <-more:
		case <-again:
		}
	}
}

// send sends all lines up to a number.
func (f *Follower) send(ctx context.Context, last uint64) error {
	for f.sent.Load() < last {
		lines, upTo, at, err := f.collect(last)
		if err != nil {
			return err
		}
		if len(lines) > 0 {
			if err := f.sender.Send(ctx, lines); err != nil {
				return err
			}
		}
		if err := f.keep(upTo); err != nil {
			return err
		}
		f.at = at
		f.sent.Store(upTo)
	}
	return nil
}

// collect reads some of the lines that follow on the last one that was sent. Of a
// file that somebody has removed it says so and goes on behind it.
func (f *Follower) collect(last uint64) (lines [][]byte, upTo uint64, at place, err error) {
	next := f.sent.Load() + 1
	segment, behind, err := f.find(next)
	if err != nil {
		return nil, 0, place{}, err
	}
	if segment.Path == "" {
		return nil, f.miss(next, min(last, behind-1)), place{}, nil
	}
	r, err := audit.OpenReader(segment.Path, segment.Compressed)
	if err != nil {
		return nil, 0, place{}, err
	}
	defer r.Close()
	if f.at.first == segment.First {
		if err := r.Skip(f.at.offset); err != nil {
			return nil, 0, place{}, err
		}
	}
	upTo, at = next-1, place{segment.First, r.Offset()}
	for size := 0; upTo < last && len(lines) < maxLines && size < maxBytes; {
		text, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, place{}, err
		}
		line, err := audit.ParseLine(text)
		if err != nil {
			return nil, 0, place{}, fmt.Errorf("%s: %w", segment.Path, err)
		}
		at.offset = r.Offset()
		if line.Seq >= next {
			lines, upTo, size = append(lines, bytes.Clone(text)), line.Seq, size+len(text)
		}
	}
	if len(lines) == 0 && behind > 0 {
		return nil, f.miss(next, min(last, behind-1)), place{}, nil
	}
	if len(lines) == 0 {
		return nil, 0, place{}, fmt.Errorf("line %d is not where it should be, in %s", next, segment.Path)
	}
	return lines, upTo, at, nil
}

// miss says that lines cannot be sent any more, and returns the last of them.
func (f *Follower) miss(first, last uint64) uint64 {
	f.logger.Error("lines of the audit log are gone and were not sent", "sink", f.name, "first", first, "last", last)
	return last
}

// find returns the file in which a line should be, empty if there is none, and the
// number of the first line in the file behind it, 0 if there is none.
func (f *Follower) find(seq uint64) (found audit.Segment, behind uint64, err error) {
	segments, err := audit.Segments(f.log.Dir())
	if err != nil {
		return found, 0, err
	}
	for _, s := range segments {
		if s.First > seq {
			return found, s.First, nil
		}
		found = s
	}
	if len(segments) == 0 {
		return found, 0, errors.New("the files of the log are gone")
	}
	return found, 0, nil
}

func (f *Follower) cursor() string { return filepath.Join(f.log.Dir(), "cursor-"+f.name) }

func (f *Follower) readCursor() (uint64, error) {
	text, err := os.ReadFile(f.cursor())
	if err != nil {
		return 0, err
	}
	seq, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s does not hold the number of a line; write there the number of the last one that was sent", f.cursor())
	}
	return seq, nil
}

// keep takes down how far it has come.
func (f *Follower) keep(seq uint64) error {
	return ondisk.WriteFile(f.cursor(), fmt.Appendln(nil, seq), 0o600)
}
