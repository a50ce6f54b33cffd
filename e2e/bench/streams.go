package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
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
	dir, err := buildMock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := startDaemon(ctx, l, dir, fmt.Sprintf("provider \"mock\" {}\nlimits { output = %d }", mostOutput))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	id, err := d.create(mockHello.template)
	if err != nil {
		return nil, err
	}
	p, err := startPlugin(ctx, filepath.Join(dir, mockName))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, p) }()

	each := max(count/rounds, 1)
	code := fmt.Sprintf(`mock: {"lines": %d, "lines_per_second": %d}`, each, linesPerSecond)
	var rest, direct times
	for range rounds {
		for _, side := range []struct {
			read func(ctx context.Context, code string, to *lineReader) error
			all  *times
		}{
			{func(ctx context.Context, code string, to *lineReader) error { return p.run(ctx, code, to) }, &direct},
			{func(ctx context.Context, code string, to *lineReader) error { return d.stream(ctx, id, code, to) }, &rest},
		} {
			group, ctx := errgroup.WithContext(ctx)
			readers := make([]lineReader, streamsAtOnce)
			for i := range readers {
				group.Go(func() error {
					if err := side.read(ctx, code, &readers[i]); err != nil {
						return err
					}
					return readers[i].end(each)
				})
			}
			if err := group.Wait(); err != nil {
				return nil, err
			}
			for _, r := range readers {
				*side.all = append(*side.all, r.delays...)
			}
		}
	}
	return []line{{
		what: fmt.Sprintf("%d streams at once of %d lines a second each, %d lines in all: from the plugin's pipe to the client, mock provider, client and servers on the same CPUs",
			streamsAtOnce, linesPerSecond, len(rest)),
		measured: "all complete and in order; " + rest.String(),
		beside:   "the same over gRPC from the plugin: " + direct.String(),
		compared: fmt.Sprintf("p50 %s, p99 %s", difference(rest.percentile(50)-direct.percentile(50)), difference(rest.percentile(99)-direct.percentile(99))),
		aim:      "complete, in order",
		met:      met, // else there is an error
	}}, nil
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

// lineReader takes lines of the mock provider and times them.
type lineReader struct {
	rest   []byte // the beginning of a line
	delays times
}

var _ sdk.Output = (*lineReader)(nil)

// Stdout implements sdk.Output.
func (r *lineReader) Stdout(p []byte) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
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
