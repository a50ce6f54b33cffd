package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

const (
	streamsAtOnce  = 50
	linesPerSecond = 1000
)

// measureStreams reads the output of many executions at once, line by line as it
// comes, in turn through the broker and from a plugin of its own over gRPC. The
// mock provider prints, since what the host's clock says is no business of a
// sandbox. A line that is missing or not in its place is an error.
func measureStreams(ctx context.Context, l lab, count int) (lines []line, err error) {
	m, err := startMock(ctx, l, fmt.Sprintf("limits { output = %d }", mostOutput))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, m) }()
	instances := map[*daemon]string{}
	if err := m.brokers.each(func(d *daemon) (err error) {
		instances[d], err = d.create(mockHello.template)
		return err
	}); err != nil {
		return nil, err
	}
	lines, err = contest{turns: fewTurns}.run(ctx, count, []entry{{
		row: "streams",
		what: fmt.Sprintf("%d streams at once of %d lines a second each: from the plugin's pipe to the client, mock provider, client and servers on the same CPUs",
			streamsAtOnce, linesPerSecond),
		ours: m.brokers.sides(func(d *daemon) turn {
			return streams(func(ctx context.Context, code string, to *lineReader) error {
				return d.stream(ctx, instances[d], code, to)
			})
		}),
		beside: &side{"the same over gRPC from the plugin", streams(func(ctx context.Context, code string, to *lineReader) error {
			return m.plugin.run(ctx, code, to)
		})},
		claims: []claim{difference(p50), difference(p99)},
	}})
	for i := range lines {
		lines[i].Note = "all complete and in order, as they should" // else there is an error
	}
	return lines, err
}

// streams reads so many lines in each of many streams.
func streams(read func(ctx context.Context, code string, to *lineReader) error) turn {
	return func(ctx context.Context, count int) (m measured, err error) {
		code := fmt.Sprintf(`mock: {"lines": %d, "lines_per_second": %d}`, count, linesPerSecond)
		group, ctx := errgroup.WithContext(ctx)
		readers := make([]lineReader, streamsAtOnce)
		for i := range readers {
			group.Go(func() error {
				if err := read(ctx, code, &readers[i]); err != nil {
					return err
				}
				return readers[i].end(count)
			})
		}
		err = group.Wait()
		for _, r := range readers {
			m.took = append(m.took, r.delays...)
		}
		return m, err
	}
}

// stream runs code in an instance and reads what it prints as events.
func (d *daemon) stream(ctx context.Context, id, code string, to *lineReader) error {
	body, err := json.Marshal(map[string]any{"language": mockHello.language, "code": code, "timeout": runBound.Seconds()})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+d.http.Addr+"/api/v1/instances/"+id+"/execute", bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", sse.MediaType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events := sse.NewReader(resp.Body, mostOutput)
	for {
		e, err := events.Next()
		if err != nil {
			return fmt.Errorf("HTTP %d, no last event: %w", resp.StatusCode, err)
		}
		switch e.Name {
		case "stdout":
			var part struct{ Text string }
			if err := json.Unmarshal(e.Data, &part); err != nil {
				return err
			}
			if err := to.Stdout([]byte(part.Text)); err != nil {
				return err
			}
		case "done":
			return nil
		case "error":
			return fmt.Errorf("the stream ended with %s", e.Data)
		}
	}
}

// lineReader takes numbered lines with the time at which they were printed, and times them.
type lineReader struct {
	wall   bool   // lines are timed by the clock of the world, which a sandbox shares
	rest   []byte // the beginning of a line
	delays times
}

var _ sdk.Output = (*lineReader)(nil)

// Stdout implements sdk.Output.
func (r *lineReader) Stdout(p []byte) error {
	var now unix.Timespec
	clock := int32(unix.CLOCK_MONOTONIC)
	if r.wall {
		clock = unix.CLOCK_REALTIME
	}
	if err := unix.ClockGettime(clock, &now); err != nil {
		return err
	}
	r.rest = append(r.rest, p...)
	for {
		line, rest, whole := bytes.Cut(r.rest, []byte("\n"))
		if !whole {
			return nil
		}
		number, stamp, _ := bytes.Cut(line, []byte(" "))
		printed, err := strconv.ParseInt(string(stamp), 10, 64)
		if err != nil || string(number) != strconv.Itoa(len(r.delays)) {
			return fmt.Errorf("line %d is %q", len(r.delays), line)
		}
		r.delays = append(r.delays, time.Duration(now.Nano()-printed))
		r.rest = rest
	}
}

// Stderr implements sdk.Output.
func (r *lineReader) Stderr(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return fmt.Errorf("unexpected: %s", p)
}

// Artifact implements sdk.Output.
func (r *lineReader) Artifact(a sdk.Artifact) error {
	return fmt.Errorf("unexpected artifact %s", a.Name)
}

// end says whether all came.
func (r *lineReader) end(count int) error {
	if len(r.delays) != count || len(r.rest) > 0 {
		return fmt.Errorf("%d of %d lines came, and %q", len(r.delays), count, r.rest)
	}
	return nil
}
