package remote

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// untilSignal returns a context that the first signal ends; the second ends the process.
func untilSignal(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := onSignals(cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// onSignals calls first for the first of SIGINT and SIGTERM, and ends the process for the
// second, until the function that it returns is called.
func onSignals(first func()) (stop func()) {
	signals, done, ended := make(chan os.Signal, 2), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer close(ended)
		select {
		case <-done:
			return
		case <-signals:
		}
		go func() { // the second signal does not wait for what the first one does
			select {
			case <-done:
			case s := <-signals:
				os.Exit(128 + int(s.(syscall.Signal)))
			}
		}()
		first()
	}()
	return func() {
		signal.Stop(signals)
		close(done)
		<-ended
	}
}
