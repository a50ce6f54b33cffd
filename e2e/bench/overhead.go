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
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// perSecond is the constant rate of requests.
	perSecond = 5000
	// mostOverhead of the broker, in the median, is the aim.
	mostOverhead = time.Millisecond
)

// mockHello is "run" by the mock provider: it prints the code.
var mockHello = program{"python", "python", "1", "1"}

// measureOverhead sends executions to the mock provider at a constant rate, in
// turn through the broker's REST API and to a plugin of its own over gRPC.
func measureOverhead(ctx context.Context, l lab, count int) (lines []line, err error) {
	dir, err := buildMock(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	d, err := startDaemon(ctx, l, dir, `provider "mock" {}`)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, d) }()
	throughBroker, err := d.requests()
	if err != nil {
		return nil, err
	}
	p, err := startPlugin(ctx, filepath.Join(dir, mockName))
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, p) }()

	each := max(count/rounds, 1)
	var rest, direct times
	for round := range rounds + 1 {
		for _, side := range []struct {
			do  func() error
			all *times
		}{{p.execute, &direct}, {throughBroker, &rest}} {
			n := each
			if round == 0 { // the first warms up
				n = min(each, perSecond)
			}
			t, err := atConstantRate(ctx, n, side.do)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				*side.all = append(*side.all, t...)
			}
		}
	}
	more := rest.percentile(50) - direct.percentile(50)
	return []line{{
		what:     fmt.Sprintf("broker overhead at a constant %d requests a second, mock provider, client and servers on the same CPUs", perSecond),
		measured: rest.String(),
		beside:   "the same over gRPC to the plugin: " + direct.String(),
		compared: fmt.Sprintf("p50 %s, p99 %s", difference(more), difference(rest.percentile(99)-direct.percentile(99))),
		aim:      "p50 <= " + difference(mostOverhead),
		met:      judge(more <= mostOverhead),
	}}, nil
}

// requests returns a function that executes code in an instance made now.
func (d *daemon) requests() (func() error, error) {
	id, err := d.create(mockHello.template)
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(mockHello.request())
	if err != nil {
		return nil, err
	}
	path, expected := "/api/v1/instances/"+id+"/execute", []byte(`"stdout":"1"`)
	return func() error {
		status, answer, err := d.do(http.MethodPost, path, body)
		if err != nil {
			return err
		}
		if status != http.StatusOK || !bytes.Contains(answer, expected) {
			return fmt.Errorf("HTTP %d: %s", status, answer)
		}
		return nil
	}, nil
}

// atConstantRate begins count calls at perSecond, however long each takes, and
// times them from the moment when they should have begun: a server that is late
// for one is late for those behind it too.
func atConstantRate(ctx context.Context, count int, do func() error) (times, error) {
	// Go's own timers are rounded up to a millisecond where a process has little
	// else to do. That would be most of what is measured, and more of it on the
	// side that gives the client less to do.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, errs := make(times, count), make([]error, count)
	var wg sync.WaitGroup
	began := time.Now()
	for i := range count {
		due := began.Add(time.Duration(i) * time.Second / perSecond)
		for left := time.Until(due); left > 0; left = time.Until(due) {
			pause := unix.NsecToTimespec(left.Nanoseconds())
			_ = unix.Nanosleep(&pause, nil) // when a signal cuts it short, it is done again
		}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			errs[i] = do()
			all[i] = time.Since(due)
		})
	}
	wg.Wait()
	failed := slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(failed) > 0 {
		return nil, fmt.Errorf("%d of %d requests failed, the first: %w", len(failed), count, failed[0])
	}
	return all, ctx.Err()
}
