package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/client"
)

// interruptTimeout bounds the request that interrupts.
const interruptTimeout = 5 * time.Second

// stream shows output as it appears. The first signal interrupts the code, the
// second ends this process.
func (c *execution) stream(ctx context.Context, request client.ExecuteRequest) (client.Execution, error) {
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	i := &interrupter{broker: c.broker, leave: leave}
	defer onSignals(i.interrupt)()

	stop := startProgress(c.console, func() string { return "waiting for a sandbox" })
	events, err := c.broker.ExecuteEvents(ctx, request)
	stop()
	if err != nil {
		return client.Execution{}, err
	}
	defer events.Close()
	return followCode(c.console, events, i)
}

// followCode shows events until the last one.
func followCode(console *Console, events *client.Events, i *interrupter) (client.Execution, error) {
	var result client.ExecutionResult
	stdout := &lineWatcher{Writer: console.Out}
	for {
		e, err := events.Next()
		if problem, failed := errors.AsType[*client.Problem](err); failed {
			return client.Execution{}, problem
		}
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return client.Execution{}, fmt.Errorf("the broker's answer broke off: %w", err)
		}
		switch e.Name {
		case client.EventStarted:
			var where client.ExecutionStarted
			if err = client.Decode(e, &where); err == nil {
				i.started(where)
			}
		case client.EventStdout:
			err = writePart(stdout, e)
		case client.EventStderr:
			err = writePart(console.Err, e)
		case client.EventLost:
			err = showLost(console, e)
		case client.EventResult:
			err = client.Decode(e, &result)
		case client.EventDone:
			var end client.Execution
			if err := client.Decode(e, &end); err != nil {
				return end, err
			}
			err = showResult(stdout, result.Result)
			showEnd(console, end)
			return end, err
		}
		if err != nil {
			return client.Execution{}, err
		}
	}
}

func writePart(to io.Writer, e client.Event) error {
	var part client.OutputPart
	if err := client.Decode(e, &part); err != nil {
		return err
	}
	_, err := to.Write(append([]byte(part.Text), part.Base64...))
	return err
}

// showLost says that output is missing.
func showLost(console *Console, e client.Event) error {
	var lost client.EventsLost
	if err := client.Decode(e, &lost); err != nil {
		return err
	}
	_, err := fmt.Fprintf(console.Err, "sandbox-broker: %d events are not kept any more\n", lost.Events)
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

// showEnd says what output does not.
func showEnd(console *Console, e client.Execution) {
	if e.Truncated {
		fmt.Fprintln(console.Err, "sandbox-broker: the output was cut at the limit")
	}
	if e.Error != nil {
		fmt.Fprintf(console.Err, "sandbox-broker: %s %s: %s\n", e.Error.Code, e.Error.Title, e.Error.Detail)
	}
}

// interrupter passes a signal on to the code.
type interrupter struct {
	broker *client.Client
	leave  context.CancelFunc // ends the request instead

	mu    sync.Mutex
	where client.ExecutionStarted // zero as long as nothing runs
}

func (i *interrupter) started(where client.ExecutionStarted) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.where = where
}

// interrupt interrupts the execution, or gives up the request if that cannot be.
func (i *interrupter) interrupt() {
	i.mu.Lock()
	where := i.where
	i.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), interruptTimeout)
	defer cancel()
	if where.ExecutionID != "" {
		err := i.broker.Interrupt(ctx, where.InstanceID, where.ExecutionID)
		problem, refused := errors.AsType[*client.Problem](err)
		if err == nil || refused && problem.Status == http.StatusNotFound { // it has just ended
			return
		}
	}
	i.leave()
}
