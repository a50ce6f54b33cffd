package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

const (
	// maxEvent bounds what exec keeps of a stream: one result of 8 MiB, escaped.
	maxEvent = 64 << 20
	// interruptTimeout bounds the request that interrupts.
	interruptTimeout = 5 * time.Second
)

// stream shows output as it appears. The first signal interrupts the code, the
// second ends this process.
func (c *execCommand) stream(ctx context.Context, term *terminal, request client.ExecuteRequest) (client.Execution, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	i := &interrupter{command: c, leave: leave}
	defer i.listen()()

	resp, err := c.post(ctx, request, sse.MediaType)
	if err != nil {
		return client.Execution{}, err
	}
	defer resp.Body.Close()
	if mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); mediaType != sse.MediaType {
		// A broker that knows no events.
		_, execution, err := c.answer(resp)
		if err != nil {
			return execution, err
		}
		err = showOutput(term, execution)
		showEnd(term, execution)
		return execution, err
	}
	return c.follow(term, sse.NewReader(resp.Body, maxEvent), i)
}

// follow shows events until the last one.
func (c *execCommand) follow(term *terminal, events *sse.Reader, i *interrupter) (client.Execution, error) {
	var result json.RawMessage
	stdout := &lineWatcher{Writer: term.out}
	for {
		e, err := events.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return client.Execution{}, fmt.Errorf("the broker's answer broke off: %w", err)
		}
		switch e.Name {
		case client.EventStarted:
			err = decodeInto(e, func(where client.ExecutionStarted) error { i.started(where); return nil })
		case client.EventStdout:
			err = decodeInto(e, func(p client.OutputPart) error { return writePart(stdout, p) })
		case client.EventStderr:
			err = decodeInto(e, func(p client.OutputPart) error { return writePart(term.err, p) })
		case client.EventResult:
			err = decodeInto(e, func(r client.ExecutionResult) error { result = r.Result; return nil })
		case client.EventError:
			err = decodeInto(e, refusal)
		case client.EventDone:
			var end client.Execution
			if err := decodeInto(e, func(e client.ExecutionEnd) error { end = client.Execution(e); return nil }); err != nil {
				return end, err
			}
			err = showResult(stdout, result)
			showEnd(term, end)
			return end, err
		}
		if err != nil {
			return client.Execution{}, err
		}
	}
}

func decodeInto[T any](e sse.Event, use func(T) error) error {
	var data T
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return fmt.Errorf("the broker's event %s cannot be read: %w", e.Name, err)
	}
	return use(data)
}

func writePart(to io.Writer, p client.OutputPart) error {
	_, err := to.Write(append([]byte(p.Text), p.Base64...))
	return err
}

// lineWatcher knows whether a line was begun and not ended.
type lineWatcher struct {
	io.Writer
	open bool
}

func (w *lineWatcher) Write(p []byte) (int, error) {
	if len(p) > 0 {
		w.open = !bytes.HasSuffix(p, []byte("\n"))
	}
	return w.Writer.Write(p)
}

// showResult writes what main returned, on a line of its own.
func showResult(stdout *lineWatcher, result json.RawMessage) error {
	if result == nil {
		return nil
	}
	if stdout.open {
		result = append([]byte("\n"), result...)
	}
	_, err := stdout.Write(append(result, '\n'))
	return err
}

// showOutput writes the output to the streams that it came from.
func showOutput(term *terminal, e client.Execution) error {
	stdout := &lineWatcher{Writer: term.out}
	out, errs := client.OutputPart{Text: e.Stdout}, client.OutputPart{Text: e.Stderr}
	if e.StdoutBase64 != nil {
		out = client.OutputPart{Base64: e.StdoutBase64}
	}
	if e.StderrBase64 != nil {
		errs = client.OutputPart{Base64: e.StderrBase64}
	}
	return errors.Join(writePart(stdout, out), showResult(stdout, e.Result), writePart(term.err, errs))
}

// showEnd says what output does not.
func showEnd(term *terminal, e client.Execution) {
	if e.Truncated {
		fmt.Fprintln(term.err, "sandbox-broker: the output was cut at the limit")
	}
	if e.Error != nil {
		fmt.Fprintf(term.err, "sandbox-broker: %s %s: %s\n", e.Error.Code, e.Error.Title, e.Error.Detail)
	}
}

// interrupter passes a signal on to the code.
type interrupter struct {
	command *execCommand
	leave   context.CancelFunc // ends the request instead

	mu    sync.Mutex
	where client.ExecutionStarted // zero as long as nothing runs
}

func (i *interrupter) started(where client.ExecutionStarted) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.where = where
}

// listen waits for signals until the function that it returns is called.
func (i *interrupter) listen() (stop func()) {
	signals, done, ended := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(ended)
		select {
		case <-done:
			return
		case <-signals:
		}
		go func() { // the second signal does not wait for the first
			select {
			case <-done:
			case s := <-signals:
				os.Exit(128 + int(s.(syscall.Signal)))
			}
		}()
		i.interrupt()
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}

// interrupt interrupts the execution, or gives up the request if that cannot be.
func (i *interrupter) interrupt() {
	i.mu.Lock()
	where := i.where
	i.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), interruptTimeout)
	defer cancel()
	if where.ExecutionID != "" {
		path := "/api/v1/instances/" + url.PathEscape(where.InstanceID) + "/executions/" + url.PathEscape(where.ExecutionID)
		resp, err := i.command.send(ctx, http.MethodDelete, path, nil)
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNotFound { // it has just ended
				return
			}
		}
	}
	i.leave()
}
