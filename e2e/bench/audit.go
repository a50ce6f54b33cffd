package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// quotas that have to be kept beyond the end of the broker.
	dailyQuotas = "quota {\n  max_instances = 100000\n  executions_per_day = 1000000000\n  execution_seconds_per_day = \"1000000h\"\n}"
	// deferred is longer than the broker puts off what need not be on disk yet.
	deferred = 400 * time.Millisecond
	// counted is how often the syncs before an answer are counted.
	counted = 18
)

// measureAudit measures what the audit log and quotas cost an execution: the mock
// provider's, beside the same broker without them. The log cannot be turned off, so that
// broker is built for it, from the source with one line changed.
func measureAudit(ctx context.Context, l lab, count int) (lines []line, err error) {
	m, err := startMock(ctx, l, dailyQuotas)
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, m) }()
	binary, err := buildUnaudited(ctx, m.dir+"-unaudited")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(filepath.Dir(binary))) }()
	without, err := startDaemon(ctx, binary, m.dir, "provider \"mock\" {}")
	if err != nil {
		return nil, err
	}
	defer func() { err = joinStop(err, without) }()

	oneShot := func(d *daemon) (func() error, error) { return func() error { return d.oneShot(mockHello) }, nil }
	var entries []entry
	for _, kind := range []struct {
		row, what string
		do        func(d *daemon) (func() error, error)
	}{
		{"audit/instance", "an execution in an instance, mock provider, 1 client, with the audit log and quotas by the day", (*daemon).requests},
		{"audit/one-shot", "the same in an instance of its own", oneShot},
	} {
		e := entry{row: kind.row, what: kind.what, claims: []claim{difference(p50).atMost(0.3), difference(p99)}}
		for _, d := range m.brokers {
			do, err := kind.do(d)
			if err != nil {
				return nil, err
			}
			e.ours = append(e.ours, &side{"broker", alone(do)})
		}
		do, err := kind.do(without)
		if err != nil {
			return nil, err
		}
		e.beside = &side{"the same broker without both", alone(do)}
		entries = append(entries, e)
	}
	if lines, err = (contest{turns: manyTurns, warm: 200, rest: quiet}).run(ctx, count, entries); err != nil {
		return nil, err
	}
	if _, err := exec.LookPath("strace"); err != nil {
		for i := range lines {
			lines[i].Note = "syncs before the answer are not counted: there is no strace"
		}
		return lines, nil
	}
	for i, kind := range []func(d *daemon) (func() error, error){(*daemon).requests, oneShot} {
		for j, d := range m.brokers {
			do, err := kind(d)
			if err != nil {
				return nil, err
			}
			s, err := d.syncsBeforeAnswer(ctx, do)
			if err != nil {
				return nil, err
			}
			of := lines[i].Ours
			if j > 0 {
				of = lines[i].Old
			} else {
				lines[i].Claims = append(lines[i].Claims, own(syncs).atMost(1).about(line{Ours: s}, nil))
			}
			of.All[syncs] = s.All[syncs]
		}
	}
	return lines, nil
}

// passedBy is the line of the source by which a provider's calls come to the audit log,
// and passing what stands there in a broker without.
const (
	recorderSource = "broker/audited/recorder.go"
	passedBy       = "return &provider{client: c, recorder: rec}, nil"
	passing        = "return c, nil"
)

// buildUnaudited builds a broker whose calls of providers leave nothing in the audit
// log. The caller owes the removal of its directory.
func buildUnaudited(ctx context.Context, dir string) (binary string, err error) {
	source, err := os.ReadFile(recorderSource)
	if err != nil {
		return "", err
	}
	if bytes.Count(source, []byte(passedBy)) != 1 {
		return "", fmt.Errorf("%s has no line %q any more: a broker without the audit log is not known here", recorderSource, passedBy)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	original, err := filepath.Abs(recorderSource)
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(dir, "recorder.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: changed}})
	if err != nil {
		return "", err
	}
	binary = filepath.Join(dir, "sandbox-broker")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-overlay", overlay, "-o", binary, "./cmd/sandbox-broker")
	err = errors.Join(
		os.WriteFile(changed, bytes.Replace(source, []byte(passedBy), []byte(passing), 1), 0o600),
		os.WriteFile(overlay, replace, 0o600))
	if err == nil {
		var out []byte
		if out, err = build.CombinedOutput(); err != nil {
			err = fmt.Errorf("build a broker without the audit log: %w: %s", err, out)
		}
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return binary, nil
}

// syncsBeforeAnswer counts how often the broker has a file system confirm something
// between a request and its answer. It waits before each request until everything has
// been confirmed that was put off. strace counts: the broker's metrics of its disk count
// what it writes too. The requests are slower for it, so that they are not timed.
func (d *daemon) syncsBeforeAnswer(ctx context.Context, do func() error) (*series, error) {
	trace := filepath.Join(d.dir, "trace")
	cmd := exec.CommandContext(ctx, "strace", "-f", "-ttt", "-e", "trace=fdatasync,fsync", "-o", trace, "-p", strconv.Itoa(d.cmd.Process.Pid))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	attached, err := bufio.NewReader(said).ReadString('\n')
	if err == nil && !strings.Contains(attached, "attached") {
		err = errors.New(strings.TrimSpace(attached))
	}
	var requests []span
	for range counted {
		if err == nil {
			err = wait(ctx, deferred)
		}
		if err == nil {
			request := span{begun: time.Now()}
			err = do()
			request.answered = time.Now()
			requests = append(requests, request)
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM) // when it has ended by itself there is an error already
	_, _ = io.Copy(io.Discard, said)
	_ = cmd.Wait() // it ends with the signal
	if err != nil {
		return nil, fmt.Errorf("strace: %w", err)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		return nil, err
	}
	return syncsWithin(requests, text), nil
}

// span is from a request to its answer.
type span struct{ begun, answered time.Time }

// traced is a call that strace saw begin, with the time in seconds.
var traced = regexp.MustCompile(`(?m)^\d+ +(\d+\.\d+) (?:fdatasync|fsync)\(`)

// syncsWithin counts the calls that began while somebody waited for an answer.
func syncsWithin(requests []span, trace []byte) *series {
	s := &series{N: len(requests), All: figures{}}
	for _, r := range requests {
		calls := 0
		for _, match := range traced.FindAllSubmatch(trace, -1) {
			at, err := strconv.ParseFloat(string(match[1]), 64)
			if err == nil && at >= seconds(r.begun) && at <= seconds(r.answered) {
				calls++
			}
		}
		s.Turns = append(s.Turns, figures{syncs: float64(calls)})
	}
	s.All[syncs] = median(s.of(syncs)) // what goes on in the background falls into some
	return s
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
