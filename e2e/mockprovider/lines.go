package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// writeLines writes the action's lines as the output of a program comes: they go
// into a pipe one by one, and out of it as many at once as are there.
func (act action) writeLines(ctx context.Context, out sdk.Output) error {
	if act.Lines <= 0 {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	printed := make(chan error, 1)
	go func() { printed <- errors.Join(act.printLines(ctx, w), w.Close()) }()
	buf := make([]byte, 32<<10)
	for {
		n, readErr := r.Read(buf)
		if n > 0 {
			err = out.Stdout(buf[:n])
		}
		if readErr != nil || err != nil {
			break
		}
	}
	return errors.Join(err, r.Close(), <-printed) // who prints ends with the pipe
}

func (act action) printLines(ctx context.Context, w io.Writer) error {
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for i := range act.Lines {
		if pause := time.Until(began.Add(time.Duration(i) * time.Second / time.Duration(max(act.PerSecond, 1)))); pause > 0 {
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
			return err
		}
		if _, err := fmt.Fprintln(w, i, now.Nano()); err != nil {
			return err
		}
	}
	return nil
}
